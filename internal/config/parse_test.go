package config

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// The example shows every setting with its default, so it differs from the
// defaults only in what is a matter of one's own network and topics.
func TestExampleIsAccepted(t *testing.T) {
	got, err := Load("../../deploy/offsetproxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.MetricsListen = "127.0.0.1:9400"
	want.Proxy.Bootstrap = []string{"kafka-1.internal:9092", "kafka-2.internal:9092"}
	want.Proxy.Listen = "0.0.0.0:9092"
	want.Proxy.AdvertisedHost = "proxy.internal"
	want.Proxy.BrokerPorts = proxy.PortRange{First: 9093, Last: 9192}
	want.Proxy.NodePorts = map[int32]int{1001: 9293}
	want.Proxy.Rules = []proxy.Rule{
		{Topics: "orders.audit", Mode: proxy.ModeOff},
		{Topics: "orders.*", Mode: proxy.ModeRequire},
		{TopicsRegexp: `ledger\.(eu|us)\.[0-9]+`, Mode: proxy.ModeEnforce},
		{Topics: "trial.*", Mode: proxy.ModeObserve},
	}
	if want.Proxy, err = want.Proxy.InForce(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	with := func(change func(*Settings)) *Settings {
		s := Defaults()
		s.Proxy.Bootstrap = []string{"k:9092"}
		change(s)
		return s
	}
	for _, c := range []struct {
		name string
		src  string
		want *Settings
	}{
		{"only the brokers", "bootstrap: k:9092", with(func(*Settings) {})},
		{"a key without a value is not given", "bootstrap: k:9092\nlisten:\nrules:\nlimits:\n", with(func(*Settings) {})},
		{"profiles beside the metrics", "bootstrap: k:9092\nmetrics: {listen: ':1', pprof: true}", with(func(s *Settings) {
			s.MetricsListen, s.Pprof = ":1", true
		})},
		{"metrics by topic", "bootstrap: k:9092\nmetrics: {per_topic: true}", with(func(s *Settings) { s.Proxy.MetricTopics = 100 })},
		{"metrics by few topics", "bootstrap: k:9092\nmetrics: {per_topic: true, max_topics: 7}", with(func(s *Settings) { s.Proxy.MetricTopics = 7 })},
		{"metrics not by topic", "bootstrap: k:9092\nmetrics: {per_topic: false, max_topics: 7}", with(func(*Settings) {})},
		{"several brokers in one text", "bootstrap: k:9092, l:9092", with(func(s *Settings) {
			s.Proxy.Bootstrap = []string{"k:9092", "l:9092"}
		})},
		{"an IPv6 broker in a list", "bootstrap: ['[::1]:9092']", with(func(s *Settings) {
			s.Proxy.Bootstrap = []string{"[::1]:9092"}
		})},
		{"ports as text", "bootstrap: k:9092\nbroker_ports: 9093-9099", with(func(s *Settings) {
			s.Proxy.BrokerPorts = proxy.PortRange{First: 9093, Last: 9099}
		})},
		{"ports as keys", "bootstrap: k:9092\nbroker_ports: {first: 9093, last: 9099}\nnode_ports: {1001: 9200}", with(func(s *Settings) {
			s.Proxy.BrokerPorts = proxy.PortRange{First: 9093, Last: 9099}
			s.Proxy.NodePorts = map[int32]int{1001: 9200}
		})},
		{"rules in order", "bootstrap: k:9092\nrules: [{topics: a, mode: off}, {topics: 'a*', mode: require}]\ndefault_mode: require", with(func(s *Settings) {
			s.Proxy.Rules = []proxy.Rule{{Topics: "a"}, {Topics: "a*", Mode: proxy.ModeRequire}}
			s.Proxy.Default = proxy.ModeRequire
		})},
		{"every option of a rule", `
bootstrap: k:9092
rules:
- topics_regexp: a|b
  mode: enforce
  error_code: 87
  replay: content
  expected_offset_header: place
  expected_offset_encoding: int64
  append_id_header: once
  old_timestamps: allow
- {topics: c, mode: observe, replay: off}
default_mode: enforce`, with(func(s *Settings) {
			s.Proxy.Rules = []proxy.Rule{
				{TopicsRegexp: "a|b", Mode: proxy.ModeEnforce, Options: proxy.RuleOptions{
					ErrorCode: 87, Replay: proxy.ReplayContent, ExpectedOffsetHeader: "place", Encoding: proxy.EncodingInt64,
					AppendIDHeader: "once", AllowOldTimestamps: true,
				}},
				{Topics: "c", Mode: proxy.ModeObserve, Options: proxy.RuleOptions{Replay: proxy.ReplayOff}},
			}
			s.Proxy.Default = proxy.ModeEnforce
		})},
		{"sizes, times and numbers", "bootstrap: k:9092\nview_max_age: 1m30s\nlimits: {max_frame: 1048576, max_decompressed: 1GiB, max_connections: 20_000, idle_timeout: 0}\nfence_id: 99", with(func(s *Settings) {
			s.Proxy.ViewMaxAge = 90 * time.Second
			s.Proxy.MaxFrameBytes = mib
			s.Proxy.MaxDecompressedBytes = gib
			s.Proxy.MaxConnections = 20_000
			s.Proxy.FenceID = 99
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("f.yaml", []byte(c.src))
			if err != nil {
				t.Fatal(err)
			}
			var wantErr error
			if c.want.Proxy, wantErr = c.want.Proxy.InForce(); wantErr != nil {
				t.Fatal(wantErr)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Settings{}, "Notes")); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// Defaults and what follows from settings come from the proxy alone.
func TestDefaultsAreTheProxysOwn(t *testing.T) {
	want, err := proxy.Config{Bootstrap: []string{"k:9092"}, Listen: "127.0.0.1:9092"}.InForce()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("f.yaml", []byte("bootstrap: k:9092"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Proxy); diff != "" {
		t.Errorf("in force (-proxy +config):\n%s", diff)
	}
}

// A file can set every field of proxy.Config that is not code; Listeners stand in
// the place of others and are tried on their own.
func TestEveryFieldOfTheProxyCanBeSet(t *testing.T) {
	notInAFile := []string{"Listeners", "Unsafe", "Logger", "Meter", "Tracing", "Dial", "ListenFunc"}
	settings, err := Parse("f.yaml", []byte(`
bootstrap: k:1
listen: 10.0.0.1:2
advertised_host: p
broker_ports: 3-4
node_ports: {1: 5}
rules: [{topics: a, mode: require}]
default_mode: require
fence_id: 6
brokers: {kind: kfake, probe_topic: p, assert: {producer_id_expiration: 7h, producer_id_expiration_check: 8s, connections_max_idle: 9s}}
upstream: {sasl: {mechanism: PLAIN, user: p, password_env: PASSWORD_OF_P}}
view_max_age: 10s
admission_wait: 11s
clock_skew: 12s
answer_max: 32s
limits: {max_frame: 1313, max_decompressed: 1414, max_produce_partitions: 15, max_pending_requests: 16, max_rewritten: 1717, max_held: 1818,
  max_connections: 19, dial_timeout: 20s, handshake_timeout: 21s, idle_timeout: 22s, drain_timeout: 23s, idle_views: 24, max_rule_topics: 25,
  producer_keep: 35s, max_producers: 36, idle_producers: 37,
  max_topics: 33, max_unknown: 26, max_add_partitions: 2727, max_readings: 28, old_reads_per_second: 41, max_read_back: 2929, max_control_answer: 30MiB, control_timeout: 31s,
  max_connections_per_address: 42, max_buffered: 43MiB, arrival_timeout: 44s, write_timeout: 45s, longest_hold: 46s, lookup_timeout: 47s,
  reading_timeout: 48s, drain_delay: 49s}
metrics: {per_topic: true, max_topics: 50}`))
	if err != nil {
		t.Fatal(err)
	}
	got, unset := reflect.ValueOf(settings.Proxy), reflect.ValueOf(Defaults().Proxy)
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		same := reflect.DeepEqual(got.Field(i).Interface(), unset.Field(i).Interface())
		if want := slices.Contains(notInAFile, name); same != want {
			t.Errorf("%s: set by the file: %v, want %v", name, !same, !want)
		}
	}
}

func TestWhetherTopicsWouldBeServed(t *testing.T) {
	const k = "bootstrap: k:9092\ndefault_mode: require\n"
	for _, c := range []struct {
		name  string
		src   string
		ok    bool
		notes int
	}{
		{"Kafka's own limits", k, true, 0},
		{"the interval that nobody asserted counts", k + "brokers: {assert: {producer_id_expiration: 30m, connections_max_idle: 10m}}", false, 0},
		{"a shorter interval, asserted", k + "brokers: {assert: {producer_id_expiration: 30m, connections_max_idle: 10m, producer_id_expiration_check: 1m}}", true, 0},
		{"the rest is read, and may do", k + "brokers: {assert: {producer_id_expiration: 30m}}", true, 1},
		{"the rest is read, and nothing would do", k + "brokers: {assert: {producer_id_expiration: 2m}}", false, 0},
		{"an idle time as long as Kafka's expiry", k + "brokers: {assert: {connections_max_idle: 24h}}", true, 1},
		{"nothing is fenced", "bootstrap: k:9092\nbrokers: {assert: {connections_max_idle: 24h}}", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, err := Parse("f.yaml", []byte(c.src))
			if (err == nil) != c.ok {
				t.Fatalf("got error %v, want good: %v", err, c.ok)
			}
			if err == nil && len(settings.Notes) != c.notes {
				t.Errorf("got notes %q, want %d", settings.Notes, c.notes)
			}
		})
	}
}

// What may not be meant is noted, and noted only then.
func TestNotesOnRules(t *testing.T) {
	for _, c := range []struct {
		rules string
		notes int
	}{
		{"[{topics: a, mode: require, old_timestamps: refuse}]", 0},
		{"[{topics: a, mode: require, old_timestamps: allow}]", 1},
		{"[{topics: a, mode: enforce, old_timestamps: allow}]", 1},
		{"[{topics: a, mode: observe, old_timestamps: allow}]", 0}, // nothing is fenced
		{"[{topics: '*', mode: require}, {topics: a, mode: off}]", 1},
		{"[{topics_regexp: '.*', mode: observe}, {topics: a, mode: off}]", 1},
		{"[{topics: a, mode: off}, {topics: '*', mode: require}]", 0},
		{"[{topics: 'a*', mode: require}, {topics: ab, mode: off}]", 1},
		{"[{topics: 'a*', mode: require}, {topics: 'ab?', mode: off}, {topics: 'b*', mode: off}]", 1},
		{"[{topics: 'a?', mode: require}, {topics: ab, mode: off}, {topics: abc, mode: off}, {topics: 'a*', mode: off}]", 1},
		{"[{topics_regexp: 'a|bc', mode: require}, {topics: bc, mode: off}, {topics: abc, mode: off}]", 1},
		{"[{topics: 'a[bc]', mode: require}, {topics: ab, mode: off}, {topics: 'a[b]', mode: off}]", 1},
		{"[{topics: 'a b', mode: require}, {topics: 'a/*', mode: off}, {topics: 'a[/]', mode: off}]", 2},
	} {
		settings, err := Parse("f.yaml", []byte("bootstrap: k:9092\nrules: "+c.rules))
		if err != nil {
			t.Fatal(err)
		}
		if len(settings.Notes) != c.notes {
			t.Errorf("%s: got notes %q, want %d", c.rules, settings.Notes, c.notes)
		}
	}
}

// What is in force shows every option of every rule, and people those chosen.
func TestEffectiveRules(t *testing.T) {
	settings, err := Parse("f.yaml", []byte(`
bootstrap: k:9092
rules:
- {topics_regexp: a|b, mode: enforce, error_code: 44, replay: content, expected_offset_encoding: int64, old_timestamps: allow, append_id_header: once}
- {topics: c, mode: observe}
default_mode: require`))
	if err != nil {
		t.Fatal(err)
	}
	got := settings.Effective()
	want := []EffectiveRule{
		{TopicsRegexp: "a|b", Mode: "enforce", ErrorCode: 44, Replay: "content", ExpectedOffsetHeader: "expected-offset",
			ExpectedOffsetEncoding: "int64", AppendIDHeader: "once", OldTimestamps: "allow"},
		{Topics: "c", Mode: "observe", ErrorCode: 1, Replay: "id", ExpectedOffsetHeader: "expected-offset",
			ExpectedOffsetEncoding: "decimal", AppendIDHeader: "append-id", OldTimestamps: "refuse"},
	}
	if diff := cmp.Diff(want, got.Rules); diff != "" || got.DefaultMode != "require" {
		t.Errorf("default mode %s, rules (-want +got):\n%s", got.DefaultMode, diff)
	}
	for i, chosen := range []string{"error_code 44, replay content, expected_offset_encoding int64, append_id_header once, old_timestamps allow", ""} {
		if s := got.Rules[i].chosen(); s != chosen {
			t.Errorf("rule %d: got %q, want %q", i, s, chosen)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	type place struct {
		path         string
		line, column int
	}
	const k = "bootstrap: k:9092\n"
	for _, c := range []struct {
		name string
		src  string
		want []place
	}{
		{"nothing", "", []place{{"", 0, 0}}},
		{"only comments", "# later\n", []place{{"", 0, 0}}},
		{"two documents", k + "---\n" + k, []place{{"", 0, 0}}},
		{"no brokers", "listen: 127.0.0.1:1", []place{{"bootstrap", 0, 0}}},
		{"broker without port", "bootstrap: k", []place{{"bootstrap", 1, 12}}},
		{"broker twice", "bootstrap: [k:1, k:1]", []place{{"bootstrap[1]", 1, 18}}},
		{"unknown key", k + "listn: x", []place{{"", 2, 1}}},
		{"unknown inner key", k + "limits:\n  max_fram: 1", []place{{"", 3, 3}}},
		{"key of a later version", k + "tls: {}", []place{{"", 2, 1}}},
		{"duplicate key", k + "listen: a:1\nlisten: b:1", []place{{"", 3, 1}}},
		{"not YAML", k + "rules: [", []place{{"", 2, 8}}},
		{"list for a value", k + "listen: [a:1]", []place{{"listen", 2, 9}}},
		{"value for a list", k + "rules: a", []place{{"rules", 2, 8}}},
		{"value for keys", k + "limits: 3", []place{{"limits", 2, 9}}},
		{"list for a file", "[k]", []place{{"", 1, 1}}},
		{"item for a rule", k + "rules: [a, {topics: b, mode: off}]", []place{{"rules[0]", 2, 9}}},
		{"unknown keys, each", k + "listn: x\nlimits:\n  max_fram: 1\n  max_held: 1\nrules: [{topic: a, mode: on}]", []place{
			{"", 2, 1}, {"", 4, 3}, {"limits.max_held", 5, 13}, {"", 6, 10}, {"rules[0].mode", 6, 26}}},
		{"a rule whose only pattern is misspelt", k + "rules:\n- {topic: a}", []place{{"", 3, 4}, {"rules[0].mode", 0, 0}}},
		{"topics in a list", k + "rules:\n- {topics: [a, b], mode: off}", []place{{"rules[0].topics", 3, 12}}},
		{"a tab", k + "limits:\n\tmax_held: 1MiB", []place{{"", 3, 1}}},
		{"the proxy's own address", "bootstrap: [k:1, '127.0.0.1:9092']", []place{{"bootstrap", 1, 18}}},
		{"the proxy's own address by name", "bootstrap: localhost:9092\nlisten: 127.0.0.1:9092", []place{{"bootstrap", 1, 12}}},
		{"the proxy's own address among all", "bootstrap: 127.0.0.2:9092\nlisten: :9092", []place{{"bootstrap", 1, 12}}},
		{"listeners on one port", k + "listeners:\n- {name: a, listen: '127.0.0.1:7'}\n- {name: b, listen: ':7'}", []place{{"listeners[1].listen", 4, 21}}},
		{"listeners at one address", k + "listeners:\n- listen: 127.0.0.1:7\n- listen: 127.0.0.1:7", []place{{"listeners[1].listen", 4, 11}}},
		{"unknown key in a merged mapping", k + "limits:\n  <<: {max_fram: 1}", []place{{"", 3, 8}}},
		{"no such mode", k + "rules:\n- topics: a\n  mode: enforced", []place{{"rules[0].mode", 4, 9}}},
		{"two patterns", k + "rules:\n- {topics: a, topics_regexp: b, mode: off}", []place{{"rules[0].topics_regexp", 3, 30}}},
		{"bad regular expression", k + "rules:\n- {topics_regexp: 'a(', mode: off}", []place{{"rules[0].topics_regexp", 3, 19}}},
		{"bad pattern beside a bad option", k + "rules:\n- {topics: '[', mode: off, replay: on}", []place{{"rules[0].topics", 3, 12}, {"rules[0].replay", 3, 36}}},
		{"a retriable error code", k + "rules:\n- {topics: a, mode: off, error_code: 6}", []place{{"rules[0].error_code", 3, 38}}},
		{"no error code", k + "rules:\n- {topics: a, mode: off, error_code: 0}", []place{{"rules[0].error_code", 3, 38}}},
		{"error code in words", k + "rules:\n- {topics: a, mode: off, error_code: INVALID_RECORD}", []place{{"rules[0].error_code", 3, 38}}},
		{"no such encoding", k + "rules:\n- {topics: a, mode: off, expected_offset_encoding: int32}", []place{{"rules[0].expected_offset_encoding", 3, 52}}},
		{"empty header", k + "rules:\n- {topics: a, mode: off, append_id_header: ''}", []place{{"rules[0].append_id_header", 3, 44}}},
		{"one header for both", k + "rules:\n- {topics: a, mode: off, append_id_header: h, expected_offset_header: h}", []place{{"rules[0].append_id_header", 3, 44}}},
		{"a header with the other's default", k + "rules:\n- {topics: a, mode: off, expected_offset_header: append-id}", []place{{"rules[0].append_id_header", 3, 50}}},
		{"no such default mode", k + "default_mode: on", []place{{"default_mode", 2, 15}}},
		{"rule without topics", k + "rules:\n- mode: off", []place{{"rules[0].topics", 3, 9}}},
		{"rule without mode", k + "rules:\n- topics: a", []place{{"rules[0].mode", 3, 11}}},
		{"bad pattern", k + "rules:\n- topics: '[a'\n  mode: off", []place{{"rules[0].topics", 3, 11}}},
		{"pattern twice", k + "rules:\n- {topics: a, mode: off}\n- {topics: a, mode: require}", []place{{"rules[1].topics", 4, 12}}},
		{"time without unit", k + "view_max_age: 60", []place{{"view_max_age", 2, 15}}},
		{"time out of bounds", k + "view_max_age: 2h", []place{{"view_max_age", 2, 15}}},
		{"zero is no default", k + "admission_wait: 0s", []place{{"admission_wait", 2, 17}}},
		{"decimal size unit", k + "limits: {max_frame: 100MB}", []place{{"limits.max_frame", 2, 21}}},
		{"size too large", k + "limits: {max_frame: 2GiB}", []place{{"limits.max_frame", 2, 21}}},
		{"half a number", k + "limits: {max_connections: 1.5}", []place{{"limits.max_connections", 2, 27}}},
		{"ports upside down", k + "broker_ports: 9-8", []place{{"broker_ports", 2, 15}}},
		{"half a range", k + "broker_ports: {first: 9000}", []place{{"broker_ports.last", 2, 23}}},
		{"listen inside broker ports", k + "listen: 0.0.0.0:9000\nadvertised_host: p\nbroker_ports: 8999-9001", []place{{"broker_ports", 4, 15}}},
		{"node port of another node", k + "broker_ports: 9100-9110\nnode_ports: {1: 9105}", []place{{"node_ports.1", 3, 17}}},
		{"node port twice", k + "node_ports: {1: 7000, 2: 7000}", []place{{"node_ports.2", 2, 26}}},
		{"advertised host with port", k + "advertised_host: a:9092", []place{{"advertised_host", 2, 18}}},
		{"metrics on the client port", k + "metrics: {listen: ':9092'}", []place{{"metrics.listen", 2, 19}}},
		{"profiles and no metrics", k + "metrics: {pprof: true}", []place{{"metrics.pprof", 2, 18}}},
		{"profiles neither on nor off", k + "metrics: {listen: ':1', pprof: yes}", []place{{"metrics.pprof", 2, 32}}},
		{"metrics of no topics", k + "metrics: {per_topic: true, max_topics: 0}", []place{{"metrics.max_topics", 2, 40}}},
		{"metrics by topic or not", k + "metrics: {per_topic: maybe}", []place{{"metrics.per_topic", 2, 22}}},
		{"metrics on a broker port", k + "broker_ports: 9093-9099\nmetrics: {listen: ':9095'}", []place{{"metrics.listen", 3, 19}}},
		{"expiry too short for the views", k + "brokers: {assert: {producer_id_expiration: 2m}}", []place{{"brokers.assert.producer_id_expiration", 2, 44}}},
		{"login without a mechanism", k + "upstream: {sasl: {user: u, password_env: P}}", []place{{"upstream.sasl.mechanism", 2, 25}}},
		{"login by what cannot be done", k + "upstream: {sasl: {mechanism: GSSAPI, user: u, password_env: P}}", []place{{"upstream.sasl.mechanism", 2, 30}}},
		{"login of nobody", k + "upstream: {sasl: {mechanism: PLAIN, password_env: P}}", []place{{"upstream.sasl.user", 2, 30}}},
		{"login without a password", k + "upstream: {sasl: {mechanism: PLAIN, user: u}}", []place{{"upstream.sasl.password_file", 2, 30}}},
		{"password in two places", k + "upstream: {sasl: {mechanism: PLAIN, user: u, password_file: /p, password_env: P}}", []place{{"upstream.sasl.password_env", 2, 79}}},
		{"password in the file itself", k + "upstream: {sasl: {mechanism: PLAIN, user: u, password: secret}}", []place{{"upstream.sasl.password_file", 2, 30}, {"", 2, 46}}},
		{"negative fence id", k + "fence_id: -1", []place{{"fence_id", 2, 11}}},
		{"everything at once, in the file's order", "bootstrap: k\nlisten: l\nlog: {level: loud}", []place{{"bootstrap", 1, 12}, {"listen", 2, 9}, {"log.level", 3, 14}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.src))
			var wrong *Error
			if !errors.As(err, &wrong) {
				t.Fatalf("got error %v, want *Error", err)
			}
			var got []place
			for _, p := range wrong.Problems {
				got = append(got, place{p.Path, p.Line, p.Column})
				if p.Message == "" || (p.Line > 0) != (p.Excerpt != "") {
					t.Errorf("incomplete problem %+v", p)
				}
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(place{})); diff != "" {
				t.Errorf("places (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}
