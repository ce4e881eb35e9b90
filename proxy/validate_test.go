package proxy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestNewNamesTheBadField(t *testing.T) {
	tests := []struct {
		field  string
		change func(*proxy.Config)
	}{
		{"Bootstrap", func(c *proxy.Config) { c.Bootstrap = nil }},
		{"Bootstrap[1]", func(c *proxy.Config) { c.Bootstrap = append(c.Bootstrap, "broker") }},
		{"Bootstrap[0]", func(c *proxy.Config) { c.Bootstrap = []string{"broker:0"} }},
		{"Bootstrap[0]", func(c *proxy.Config) { c.Bootstrap = []string{":9092"} }},
		{"Listen", func(c *proxy.Config) { c.Listen = "" }},
		{"Listen", func(c *proxy.Config) { c.Listen = "127.0.0.1:70000" }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 2, Last: 1} }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 1, Last: 70000} }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 9000, Last: 9100} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 0} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 9092} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 9500, 2: 9500} }},
		{"Rules[0].Topics", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "[", Mode: proxy.ModeRequire}} }},
		{"Rules[0].Topics", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Mode: proxy.ModeRequire}} }},
		{"Rules[0].Mode", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "*", Mode: 99}} }},
		{"Rules[1].Topics", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "*"}, {Topics: "a[", Mode: proxy.ModeOff}} }},
		{"Rules[0].TopicsRegexp", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "*", TopicsRegexp: ".*"}} }},
		{"Rules[0].TopicsRegexp", func(c *proxy.Config) { c.Rules = []proxy.Rule{{TopicsRegexp: "("}} }},
		{"Rules[0].TopicsRegexp", func(c *proxy.Config) { c.Rules = []proxy.Rule{{TopicsRegexp: "a)|(b"}} }},
		{"Rules[0].Options.ErrorCode", option(func(o *proxy.RuleOptions) { o.ErrorCode = 6 })},
		{"Rules[0].Options.Replay", option(func(o *proxy.RuleOptions) { o.Replay = -1 })},
		{"Rules[0].Options.Replay", option(func(o *proxy.RuleOptions) { o.Replay = 3 })},
		{"Rules[0].Options.Encoding", option(func(o *proxy.RuleOptions) { o.Encoding = 2 })},
		{"Rules[0].Options.ExpectedOffsetHeader", option(func(o *proxy.RuleOptions) { o.ExpectedOffsetHeader = strings.Repeat("h", 256) })},
		{"Rules[0].Options.AppendIDHeader", option(func(o *proxy.RuleOptions) { o.AppendIDHeader = "\xff" })},
		{"Rules[0].Options.AppendIDHeader", option(func(o *proxy.RuleOptions) { o.AppendIDHeader = "expected-offset" })},
		{"Rules[0].Options.AppendIDHeader", option(func(o *proxy.RuleOptions) { o.ExpectedOffsetHeader = "append-id" })},
		{"MaxRuleTopics", func(c *proxy.Config) { c.MaxRuleTopics = -1 }},
		{"Default", func(c *proxy.Config) { c.Default = -1 }},
		{"Default", func(c *proxy.Config) { c.Default = proxy.ModeRequire + 1 }},
		{"BrokerKind", func(c *proxy.Config) { c.BrokerKind = 99 }},
		{"ProbeTopic", func(c *proxy.Config) { c.ProbeTopic = "two words" }},
		{"ProbeTopic", func(c *proxy.Config) { c.ProbeTopic = strings.Repeat("t", 250) }},
		{"FenceID", func(c *proxy.Config) { c.FenceID = -1 }},
		{"AnswerMax", func(c *proxy.Config) { c.AnswerMax = -time.Second }},
		{"MaxReadings", func(c *proxy.Config) { c.MaxReadings = -1 }},
		{"MaxFrameBytes", func(c *proxy.Config) { c.MaxFrameBytes = -1 }},
		{"MaxHeldBytes", func(c *proxy.Config) { c.MaxHeldBytes = -1 }},
		{"DialTimeout", func(c *proxy.Config) { c.DialTimeout = -time.Second }},
		{"AssertedExpiryCheck", func(c *proxy.Config) { c.AssertedExpiryCheck = -time.Second }},
	}
	for _, test := range tests {
		cfg := proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:9092"}
		test.change(&cfg)
		_, err := proxy.New(cfg)
		var bad *proxy.ConfigError
		if !errors.As(err, &bad) || !errors.Is(err, proxy.ErrConfig) || bad.Reason == "" {
			t.Errorf("%s: got %v, want a *ConfigError with a reason", test.field, err)
			continue
		}
		if bad.Field != test.field {
			t.Errorf("got field %s, want %s", bad.Field, test.field)
		}
	}
	if _, err := proxy.New(proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:9092"}); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}

func TestInForceFollowsFromListen(t *testing.T) {
	for _, test := range []struct {
		listen, host string
		ports        proxy.PortRange
	}{
		{"10.0.0.1:9092", "10.0.0.1", proxy.PortRange{First: 9093, Last: 65535}},
		{"0.0.0.0:9092", "127.0.0.1", proxy.PortRange{First: 9093, Last: 65535}},
		{"[::]:9092", "127.0.0.1", proxy.PortRange{First: 9093, Last: 65535}},
		{":9092", "127.0.0.1", proxy.PortRange{First: 9093, Last: 65535}},
		{"proxy.internal:0", "proxy.internal", proxy.PortRange{}},
	} {
		given := proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: test.listen}
		got, err := given.InForce()
		if err != nil || got.AdvertisedHost != test.host || got.BrokerPorts != test.ports {
			t.Errorf("listen %s: got host %q, ports %v, error %v; want %q, %v", test.listen, got.AdvertisedHost, got.BrokerPorts, err, test.host, test.ports)
		}
		if again, err := got.InForce(); err != nil || !cmp.Equal(again, got) {
			t.Errorf("listen %s: what is in force comes to something else (%v):\n%s", test.listen, err, cmp.Diff(got, again))
		}
		if given.AdvertisedHost != "" || given.ViewMaxAge != 0 {
			t.Errorf("listen %s: the configuration given was changed: %+v", test.listen, given)
		}
	}
}

func TestInForceKeepsWhatIsGiven(t *testing.T) {
	given := proxy.Config{
		Bootstrap: []string{"broker:9092"}, Listen: "0.0.0.0:9092", AdvertisedHost: "p", BrokerPorts: proxy.PortRange{First: 1, Last: 2},
		FenceID: 7, ProbeTopic: "probe", ViewMaxAge: time.Second, AdmissionWait: time.Second, ClockSkew: time.Second, IdleViews: 7, MaxRuleTopics: 7,
		ProducerKeep: time.Second, MaxProducers: 7, IdleProducers: 7,
		Rules: []proxy.Rule{{TopicsRegexp: "a|b", Mode: proxy.ModeObserve, Options: proxy.RuleOptions{
			ErrorCode: 44, Replay: proxy.ReplayOff, ExpectedOffsetHeader: "e", AppendIDHeader: "a", Encoding: proxy.EncodingInt64, AllowOldTimestamps: true,
		}}},
		AssertedProducerExpiry: time.Hour, AssertedConnectionIdle: time.Hour, AssertedExpiryCheck: time.Hour,
		MaxFrameBytes: 7, MaxDecompressedBytes: 7, MaxProducePartitions: 7, MaxPendingRequests: 7, MaxConnections: 7,
		AnswerMax: time.Second, MaxAddPartitionsBytes: 7, MaxTopics: 7, MaxUnknown: 7, MaxReadings: 7, OldReadsPerSecond: 7, MaxReadBackBytes: 7, MaxControlBytes: 7,
		ControlTimeout: time.Second, MaxRewrittenBytes: 7, MaxHeldBytes: 7, DialTimeout: time.Second, HandshakeTimeout: time.Second,
		IdleTimeout: time.Second, DrainTimeout: time.Second, DrainDelay: time.Second, WriteTimeout: time.Second, ArrivalTimeout: time.Second,
		LongestHold: time.Second, LookupTimeout: time.Second, ReadingTimeout: time.Second, MaxBufferedBytes: 7, MaxConnectionsPerAddress: 7,
	}
	got, err := given.InForce()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, got); diff != "" {
		t.Errorf("in force (-given +got):\n%s", diff)
	}
}

func TestInForceGivesRulesTheirOptions(t *testing.T) {
	given := proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: "h:9092", Rules: []proxy.Rule{{Topics: "*", Mode: proxy.ModeEnforce}}}
	got, err := given.InForce()
	want := proxy.RuleOptions{ErrorCode: 1, ExpectedOffsetHeader: "expected-offset", AppendIDHeader: "append-id"}
	if err != nil || got.Rules[0].Options != want {
		t.Errorf("got %+v, error %v, want %+v", got.Rules, err, want)
	}
	if given.Rules[0].Options != (proxy.RuleOptions{}) {
		t.Errorf("the configuration given was changed: %+v", given.Rules)
	}
}

// option changes the options of a rule.
func option(change func(*proxy.RuleOptions)) func(*proxy.Config) {
	return func(c *proxy.Config) {
		c.Rules = []proxy.Rule{{Topics: "*", Mode: proxy.ModeRequire}}
		change(&c.Rules[0].Options)
	}
}

func TestRunTwiceFails(t *testing.T) {
	p := scripted(t, proxy.Config{}, echo)
	if err := p.Run(t.Context()); err == nil {
		t.Error("the second Run succeeded")
	}
}
