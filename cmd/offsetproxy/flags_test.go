package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// leaves lists the paths of the settings that a file can have.
func leaves(of reflect.Type, prefix string) []string {
	var paths []string
	for i := range of.NumField() {
		field := of.Field(i)
		path := prefix + field.Tag.Get("yaml")
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[config.Value]() && field.Type != reflect.TypeFor[config.Ports]() {
			paths = append(paths, leaves(field.Type, path+".")...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// What a file can set, flags can set too, under the name that problems give.
func TestEverySettingHasAFlag(t *testing.T) {
	onlyInAFile := []string{"node_ports", "listeners"}
	var commands cli
	parser, err := kong.New(&commands, kong.ExplicitGroups(flagGroups), helpVars())
	if err != nil {
		t.Fatal(err)
	}
	serve := parser.Model.Children[slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "serve" })]
	flags := map[string]*kong.Flag{}
	for _, f := range serve.Flags {
		flags["--"+f.Name] = f
	}
	paths := leaves(reflect.TypeFor[config.Document](), "")
	if len(paths) < 20 {
		t.Fatalf("only %q", paths)
	}
	for _, path := range paths {
		name := flagName(path)
		if _, has := flags[name]; has == slices.Contains(onlyInAFile, path) {
			t.Errorf("%s: flag %s exists: %v", path, name, has)
		}
		delete(flags, name)
	}
	for _, mode := range []string{"off", "observe", "enforce"} { // of rules, as --require
		if flags["--"+mode] == nil {
			t.Errorf("no flag for rules of mode %s", mode)
		}
		delete(flags, "--"+mode)
	}
	for name, f := range flags {
		if f.Group != nil {
			t.Errorf("%s is in group %q and sets nothing", name, f.Group.Title)
		}
	}
}

// A flag says what is wrong with it in the words for its setting in a file.
func TestEveryFlagReachesItsSetting(t *testing.T) {
	// Values that are wrong on purpose, so that each is named.
	for _, name := range []string{
		"default-mode", "fence-id", "view-max-age", "admission-wait", "clock-skew", "idle-views",
		"assert-producer-id-expiration", "assert-producer-id-expiration-check", "assert-connections-max-idle",
		"max-frame", "max-decompressed", "max-produce-partitions", "max-pending-requests", "max-rewritten", "max-held",
		"max-connections", "dial-timeout", "handshake-timeout", "idle-timeout", "drain-timeout", "max-rule-topics",
		"producer-keep", "max-producers", "idle-producers",
		"listen", "advertised-host", "broker-ports", "tls-min-version", "tls-server-name", "broker-kind", "probe-topic", "metrics-listen", "metrics-max-topics", "log-level", "log-format",
	} {
		got := call(t, "", "serve", "--bootstrap", "k:1", "--"+name+"=?")
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "offsetproxy: --"+name+": ") {
			t.Errorf("--%s=?: got %+v", name, got)
		}
	}
}

// Rules of all modes are in force in the order in which their flags stand.
func TestRulesFromFlagsKeepTheirOrder(t *testing.T) {
	var commands cli
	parser, err := kong.New(&commands, kong.ExplicitGroups(flagGroups), helpVars())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse([]string{"serve", "--bootstrap", "k:1", "--off", "a.audit", "--require=a.*", "--enforce", "a.*.x error_code=44 replay=content",
		"--observe", "topics_regexp=b(,c){1,2}", "--off=d", "--require", "* expected_offset_encoding=int64 old_timestamps=refuse"})
	if err != nil {
		t.Fatal(err)
	}
	settings, err := commands.Serve.settings(parsed)
	if err != nil {
		t.Fatal(err)
	}
	want := []proxy.Rule{
		{Topics: "a.audit"},
		{Topics: "a.*", Mode: proxy.ModeRequire},
		{Topics: "a.*.x", Mode: proxy.ModeEnforce, Options: proxy.RuleOptions{ErrorCode: 44, Replay: proxy.ReplayContent}},
		{TopicsRegexp: "b(,c){1,2}", Mode: proxy.ModeObserve},
		{Topics: "d"},
		{Topics: "*", Mode: proxy.ModeRequire, Options: proxy.RuleOptions{Encoding: proxy.EncodingInt64}},
	}
	inForce, err := proxy.Config{Bootstrap: []string{"k:1"}, Listen: "h:1", Rules: want}.InForce()
	if err != nil {
		t.Fatal(err)
	}
	if got := settings.Proxy.Rules; !slices.Equal(got, inForce.Rules) {
		t.Errorf("got  %+v\nwant %+v", got, inForce.Rules)
	}
}

func TestRulesFromFlagsThatAreWrong(t *testing.T) {
	for _, c := range []struct{ flag, value, names string }{
		{"--enforce", "", "--enforce: "},
		{"--observe", "(", ""},
		{"--observe", "[", "--observe: "},
		{"--off", "topics_regexp=(", "--off: "},
		{"--enforce", "a error_code=6", "--enforce: error_code: "},
		{"--require", "a replay=yes", "--require: replay: "},
		{"--require", "a append_id_header=", "--require: append_id_header: "},
		{"--require", "a b", `--require "a b": `},
		{"--require", "a mode=off", `--require "a mode=off": `},
		{"--require", "a topics=b", `--require "a topics=b": `},
		{"--require", "a errorcode=1", `--require "a errorcode=1": `},
	} {
		got := call(t, "", "serve", "--bootstrap", "k", "--off", "z", c.flag+"="+c.value)
		if got.code != exitUsage || !strings.Contains(got.stderr, c.names) {
			t.Errorf("%s=%s: got %+v, want %q", c.flag, c.value, got, c.names)
		}
	}
}
