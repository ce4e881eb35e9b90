package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
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
	onlyInAFile := []string{"node_ports"}
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
		"max-connections", "dial-timeout", "handshake-timeout", "idle-timeout", "drain-timeout",
		"listen", "advertised-host", "broker-ports", "broker-kind", "metrics-listen", "log-level", "log-format",
	} {
		got := call(t, "", "serve", "--bootstrap", "k:1", "--"+name+"=?")
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "offsetproxy: --"+name+": ") {
			t.Errorf("--%s=?: got %+v", name, got)
		}
	}
}
