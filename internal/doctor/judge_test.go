package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/resources"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

var at = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// settingsOf understands a configuration; the file has its first lines.
func settingsOf(t *testing.T, text string) *config.Settings {
	t.Helper()
	s, err := config.Parse("test", []byte("bootstrap: [k-1:9092, k-2:9092]\nlisten: 10.0.0.9:9092\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const plainRules = "rules: [{topics: orders, mode: require}, {topics: 'log-*', mode: enforce}]\n"

// healthy is a cluster in which nothing is wrong, with ACLs that let nobody write but
// the proxy, which logs in for clients.
func healthy(t *testing.T, rules string) *Facts {
	f := &Facts{
		At: at, Cluster: "id", Settings: settingsOf(t, rules+"upstream: {sasl: {mechanism: PLAIN, user: proxy, password_env: X, for_clients: true}}\n"),
		Seeds:         []Seed{{Address: "k-1:9092"}, {Address: "k-2:9092"}},
		Clock:         ClockReading{Of: "the controller", Said: at, Before: at.Add(-time.Millisecond), After: at.Add(time.Millisecond), Grain: time.Millisecond},
		ClusterRights: Rights{true, -1}, Given: resources.Given{Descriptors: 1 << 20, Memory: 1 << 40, MemoryFrom: "here"},
		ACLs:      []ACL{{Name: "*", Principal: "User:proxy", Host: "*", Operation: kmsg.ACLOperationWrite}},
		Addresses: []Address{{Listener: "10.0.0.9:9092", Host: "10.0.0.9", Nodes: map[int32]int{-1: 9092, 1: 9094, 2: 9095, 3: 9096}, IPs: []string{"10.0.0.9"}}},
		Files:     []TLSFiles{{Side: "upstream", Expires: at.Add(1000 * time.Hour)}},
	}
	// It stands on an address of its own, so that nobody is told of another machine's.
	f.Settings.Notes = nil
	for node := int32(1); node <= 3; node++ {
		b := Broker{Node: node, Address: fmt.Sprintf("k-%d:9092", node), IPs: []string{fmt.Sprintf("10.0.0.%d", node)}, Version: "v4.1", APIs: map[int16]Versions{},
			Kind: &Kind{MarksBy: "log_append_time", Marks: true}, Configs: map[string]*string{
				settingExpiry: new("86400000"), settingExpiryCheck: new("600000"), settingConnectionIdle: new("600000"),
				settingAutoCreate: new("false"), settingAuthorizer: new("StandardAuthorizer"),
			}}
		for _, need := range prober.Needs() {
			b.APIs[need.Key] = Versions{0, need.Max}
		}
		f.Brokers = append(f.Brokers, b)
	}
	f.Topics = append(f.Topics, topic("orders"), topic("log-a"), topic("free"))
	probe := topic("__offsetproxy_probe")
	probe.Partitions = probe.Partitions[:1]
	f.Topics = append(f.Topics, probe, Topic{Name: "__consumer_offsets", Internal: true})
	for _, url := range []string{"http://p-1", "http://p-2"} {
		f.Proxies = append(f.Proxies, Proxy{URL: url, Agreement: agreement.Of(f.Settings.Terms()),
			Clock: ClockReading{Of: "proxy " + url, Said: at, Before: at, After: at, Grain: time.Second}})
	}
	return f
}

func topic(name string) Topic {
	t := Topic{Name: name, Rights: Rights{true, -1}, Configs: map[string]*string{
		settingMinInSync: new("2"), settingUnclean: new("false"), settingTimestampType: new("CreateTime"),
		settingCleanup: new("delete"), settingBatchSize: new("1048588"),
	}}
	for p := range int32(2) {
		t.Partitions = append(t.Partitions, Partition{ID: p, Leader: 1 + p, Replicas: []int32{1, 2, 3}, InSync: []int32{3, 2, 1}})
	}
	return t
}

// sick is a cluster with one thing wrong.
type sick struct {
	name  string
	rules string // "": plainRules
	harm  func(*Facts)
	// want is the ID and severity of what is found of it, and about whom.
	id      ID
	how     Severity
	subject string
}

var unseen = Failure{Text: "no answer in time"}

var cases = []sick{
	{"one address is silent", "", func(f *Facts) { f.Seeds[0].Failed = unseen }, BootstrapUnreachable, Warning, "bootstrap k-1:9092"},
	{"all are", "", func(f *Facts) {
		*f = Facts{At: f.At, Settings: f.Settings, Seeds: []Seed{{"k-1:9092", unseen}}}
	}, BootstrapUnreachable, Error, "bootstrap k-1:9092"},
	{"a broker is silent", "", func(f *Facts) { f.Brokers[1].Failed = unseen }, BrokerUnreachable, Error, "broker 2"},
	{"a broker is too old", "", func(f *Facts) { delete(f.Brokers[0].APIs, int16(kmsg.DescribeProducers)) }, BrokerVersion, Error, "broker 1"},
	{"an old broker, and nothing fenced", "rules: [{topics: orders, mode: observe}]\n", func(f *Facts) { delete(f.Brokers[0].APIs, int16(kmsg.DescribeProducers)) }, BrokerVersion, Warning, "broker 1"},
	{"versions are mixed", "", func(f *Facts) { f.Brokers[0].Version = "v4.0" }, BrokerVersion, Note, "brokers"},

	{"duplicates are not marked", "", func(f *Facts) { f.Brokers[0].Kind = &Kind{MarksBy: "nothing"} }, Duplicates, Warning, "broker 1"},
	{"sequences are not checked", "", func(f *Facts) { f.Brokers[0].Kind.Refusal = "out of sequence" }, Duplicates, Error, "broker 1"},
	{"a broker cannot be probed", "", func(f *Facts) { f.Brokers[0].Kind, f.Brokers[0].KindFailed = nil, unseen }, Duplicates, Warning, "broker 1"},
	{"it was not probed", "", func(f *Facts) { f.Brokers[0].Kind = nil }, Duplicates, Note, "broker 1"},
	{"it leads nothing to probe on", "", func(f *Facts) { f.Brokers[1].Kind, f.Brokers[1].KindFailed = nil, unseen }, Duplicates, Note, "broker 2"},
	{"there is no probe topic", "", func(f *Facts) {
		f.Brokers[0].Kind, f.Topics[3].Failed = nil, Failure{codeUnknownTopic, "none"}
	}, Duplicates, Note, "broker 1"},
	{"its kind is asserted", "brokers: {kind: kafka}\n" + plainRules, func(f *Facts) { f.Brokers[0].Kind = nil }, Duplicates, Note, "broker 1"},

	{"brokers forget too soon", "", func(f *Facts) { f.Brokers[2].Configs[settingExpiry] = new("60000") }, ProducerExpiry, Error, "broker 3"},
	{"views live too long", "view_max_age: 1h\n" + plainRules, func(f *Facts) {
		for _, b := range f.Brokers {
			b.Configs[settingExpiry] = new("7200000")
		}
	}, ProducerExpiry, Error, "broker 1"},
	{"limits are not told", "", func(f *Facts) {
		f.Brokers[0].Configs, f.Brokers[0].ConfigsFailed = nil, refused(codeClusterAuthorization)
	}, ProducerExpiry, Error, "broker 1"},
	{"limits are not told, and observed", "rules: [{topics: orders, mode: observe}]\n", func(f *Facts) { f.Brokers[0].Configs = nil }, ProducerExpiry, Warning, "broker 1"},
	{"limits are asserted", "brokers: {assert: {producer_id_expiration: 24h, connections_max_idle: 10m}}\n" + plainRules, func(f *Facts) { f.Brokers[0].Configs = nil }, ProducerExpiry, Note, "broker 1"},
	{"an assertion is false", "brokers: {assert: {producer_id_expiration: 48h}}\n" + plainRules, func(*Facts) {}, ProducerExpiry, Error, "broker 1"},
	{"it is kfake", "", func(f *Facts) {
		f.Brokers[0].Configs, f.Brokers[0].Kind = nil, &Kind{MarksBy: "log_start_offset", Marks: true, Embedded: true}
	}, ProducerExpiry, Note, "broker 1"},
	{"topics come by themselves", "", func(f *Facts) { f.Brokers[0].Configs[settingAutoCreate] = new("true") }, AutoCreate, Note, "brokers"},

	{"a right on the cluster lacks", "", func(f *Facts) { f.ClusterRights.Bits = 0 }, ProxyRights, Error, "cluster"},
	{"a right on a topic lacks", "", func(f *Facts) { f.Topics[0].Rights.Bits = 1 << kmsg.ACLOperationDescribe }, ProxyRights, Error, "topic orders"},
	{"an observed topic may not be seen", "rules: [{topics: orders, mode: observe}]\n", func(f *Facts) { f.Topics[0].Failed = refused(codeTopicAuthorization) }, ProxyRights, Warning, "topic orders"},
	{"the right to write for clients lacks", "", func(f *Facts) { f.Topics[0].Rights.Bits &^= 1 << kmsg.ACLOperationWrite }, ProxyRights, Error, "topic orders"},
	{"rights are not told", "", func(f *Facts) {
		f.ClusterRights = Rights{}
		for i := range f.Topics {
			f.Topics[i].Rights = Rights{}
		}
	}, ProxyRights, Note, "the proxy's principal"},

	{"the controller is ahead", "", func(f *Facts) { f.Clock.Said = at.Add(11 * time.Second) }, Clock, Error, "the clock of the controller"},
	{"the controller is behind", "", func(f *Facts) { f.Clock.Said = at.Add(-7 * time.Second) }, Clock, Warning, "the clock of the controller"},
	{"its clock cannot be seen", "", func(f *Facts) { f.Clock.Failed = unseen }, Clock, Note, "the clock of the controller"},
	{"a proxy is behind", "", func(f *Facts) { f.Proxies[1].Clock.Said = at.Add(-12 * time.Second) }, Clock, Error, "the clock of proxy http://p-2"},

	{"a rule comes too late", "rules: [{topics: 'o*', mode: enforce}, {topics: orders, mode: require}]\n", func(*Facts) {}, RuleNeverUsed, Warning, "rules[1] (orders)"},
	{"a pattern comes too late", "rules: [{topics: '*', mode: enforce}, {topics_regexp: 'or.*', mode: require}]\n", func(*Facts) {}, RuleNeverUsed, Warning, "rules[1] (/or.*/)"},
	{"a pattern leaves nothing of another", "rules: [{topics_regexp: 'orders|log-.', mode: enforce}, {topics: 'log-*', mode: require}]\n", func(*Facts) {}, RuleNeverUsed, Warning, "rules[1] (log-*)"},
	{"no topic can be called so", "rules: [{topics: 'or/ders', mode: require}]\n", func(*Facts) {}, RuleNeverUsed, Warning, "rules[0] (or/ders)"},
	{"a pattern matches nothing", "rules: [{topics: 'none.*', mode: require}]\n", func(*Facts) {}, RuleMatchesNothing, Note, "rules[0] (none.*)"},
	{"a topic is missing", "", func(f *Facts) { f.Topics[0].Failed = Failure{codeUnknownTopic, "none"} }, TopicMissing, Warning, "rules[0] (orders)"},
	{"an observed topic is missing", "rules: [{topics_regexp: 'gone', mode: observe}]\n", func(*Facts) {}, TopicMissing, Note, "rules[0] (/gone/)"},
	{"nothing can be listed", "", func(f *Facts) { f.Cluster, f.Brokers, f.Topics, f.TopicsFailed = "", nil, nil, unseen }, TopicsUnseen, Error, "cluster"},
	{"topics cannot be listed", "", func(f *Facts) { f.Topics, f.TopicsFailed = nil, unseen }, TopicsUnseen, Warning, "topics"},

	{"settings cannot be read", "", func(f *Facts) { f.Topics[1].Configs, f.Topics[1].ConfigsFailed = nil, refused(codeTopicAuthorization) }, TopicSettings, Error, "topic log-a"},
	{"settings cannot be read, and limits are asserted", "brokers: {assert: {producer_id_expiration: 24h, connections_max_idle: 10m}}\n" + plainRules, func(f *Facts) {
		f.Topics[1].Configs, f.Topics[1].ConfigsFailed = nil, refused(codeTopicAuthorization)
	}, TopicSettings, Warning, "topic log-a"},
	{"settings are not asked for", "", func(f *Facts) { f.Topics[1].Configs, f.Topics[1].ConfigsFailed = nil, unseen }, TopicSettings, Warning, "topic log-a"},
	{"unclean election", "", func(f *Facts) { f.Topics[0].Configs[settingUnclean] = new("true") }, TopicUnclean, Error, "topic orders"},
	{"unclean election where observed", "default_mode: observe\n", func(f *Facts) { f.Topics[2].Configs[settingUnclean] = new("true") }, TopicUnclean, Warning, "topic free"},
	{"one replica", "", func(f *Facts) { alone(&f.Topics[1]) }, TopicReplicas, Warning, "topic log-a"},
	{"one replica where observed", "default_mode: observe\n", func(f *Facts) { alone(&f.Topics[2]) }, TopicReplicas, Note, "topic free"},
	{"one may acknowledge", "", func(f *Facts) { f.Topics[0].Configs[settingMinInSync] = new("1") }, TopicMinInSync, Warning, "topic orders"},
	{"all must acknowledge", "", func(f *Facts) { f.Topics[0].Configs[settingMinInSync] = new("3") }, TopicMinInSync, Note, "topic orders"},
	{"more must acknowledge than there are", "", func(f *Facts) { f.Topics[0].Configs[settingMinInSync] = new("4") }, TopicMinInSync, Error, "topic orders"},
	{"nobody leads", "", func(f *Facts) { f.Topics[0].Partitions[1].Leader = -1 }, TopicInSync, Error, "topic orders"},
	{"too few are in sync", "", func(f *Facts) { f.Topics[0].Partitions[1].InSync = []int32{2} }, TopicInSync, Error, "topic orders"},
	{"too few are in sync where observed", "default_mode: observe\n", func(f *Facts) { f.Topics[2].Partitions[1].InSync = []int32{2} }, TopicInSync, Warning, "topic free"},
	{"one is not in sync", "", func(f *Facts) { f.Topics[0].Partitions[1].InSync = []int32{2, 1} }, TopicInSync, Note, "topic orders"},
	{"brokers set the time", "", func(f *Facts) { f.Topics[0].Configs[settingTimestampType] = new("LogAppendTime") }, TopicTimestamps, Note, "topic orders"},
	{"compacted", "", func(f *Facts) { f.Topics[0].Configs[settingCleanup] = new("compact,delete") }, TopicCompacted, Note, "topic orders"},
	{"batches are too large", "", func(f *Facts) { f.Topics[0].Configs[settingBatchSize] = new("100000000") }, TopicBatchSize, Warning, "topic orders"},
	{"batches are too large where observed", "default_mode: observe\n", func(f *Facts) { f.Topics[2].Configs[settingBatchSize] = new("100000000") }, TopicBatchSize, Note, "topic free"},

	{"a stranger may write", "", func(f *Facts) {
		f.ACLs = append(f.ACLs, ACL{Name: "orders", Principal: "User:eve", Host: "*", Operation: kmsg.ACLOperationAll})
	}, TopicWriters, Error, "topic orders"},
	{"somebody may write", "", func(f *Facts) {
		clientsLogIn(f)
		f.ACLs = append(f.ACLs, ACL{Name: "log-", Prefixed: true, Principal: "User:*", Host: "10.0.0.7", Operation: kmsg.ACLOperationWrite})
	}, TopicWriters, Warning, "topic log-a"},
	{"known writers may", "", func(f *Facts) {
		clientsLogIn(f)
		f.Word.Writers = []string{"User:app"}
		f.ACLs = []ACL{{Name: "orders", Principal: "User:app", Host: "*", Operation: kmsg.ACLOperationWrite}}
	}, TopicWriters, Note, "topic orders"},
	{"nobody asks who one is", "", func(f *Facts) { f.ACLs, f.ACLsFailed = nil, refused(codeSecurityDisabled) }, TopicWriters, Warning, "topics under a rule"},
	{"nobody seems to ask", "", func(f *Facts) {
		f.ACLs = nil
		for _, b := range f.Brokers {
			delete(b.Configs, settingAuthorizer)
		}
	}, TopicWriters, Warning, "topics under a rule"},
	{"ACLs may not be seen", "", func(f *Facts) { f.ACLs, f.ACLsFailed = nil, refused(codeClusterAuthorization) }, TopicWriters, Warning, "topics under a rule"},
	{"ACLs are not told", "", func(f *Facts) { f.ACLs, f.ACLsFailed = nil, unseen }, TopicWriters, Warning, "topics under a rule"},
	{"what has no ACL may be open", "", func(f *Facts) { f.ACLs, f.Brokers[0].Configs[settingAllowEveryone] = nil, nil }, TopicWriters, Warning, "topic orders"},
	{"what has no ACL may be open where settings are hidden", "", func(f *Facts) {
		f.ACLs, f.Brokers[0].Configs, f.Brokers[0].ConfigsFailed = nil, nil, refused(codeClusterAuthorization)
	}, TopicWriters, Warning, "topic orders"},
	{"somebody may delete", "", func(f *Facts) {
		f.ACLs = append(f.ACLs, ACL{Name: "ord", Prefixed: true, Principal: "User:tidy", Host: "*", Operation: kmsg.ACLOperationDelete})
	}, TopicDeleters, Note, "topic orders"},
	{"somebody may delete through the proxies", "", func(f *Facts) {
		f.Word.ClosedNetwork = true
		f.ACLs = append(f.ACLs, ACL{Name: "*", Principal: "User:tidy", Host: "*", Operation: kmsg.ACLOperationAll})
	}, TopicDeleters, Note, "topic orders"},
	{"clients may delete as the proxy", "", func(f *Facts) { f.ACLs[0].Operation = kmsg.ACLOperationAll }, TopicDeleters, Note, "topic log-a"},
	{"super users", "", func(f *Facts) { f.Brokers[0].Configs[settingSuperUsers] = nil }, SuperUsers, Note, "brokers"},
	{"another producer is at work", "", func(f *Facts) { f.Topics[0].Producers = []Producer{{ID: 7, Last: at.Add(-time.Minute)}} }, OtherProducers, Warning, "topic orders"},
	{"another producer was", "", func(f *Facts) { f.Topics[0].Producers = []Producer{{ID: 7, Last: at.Add(-time.Hour)}} }, OtherProducers, Note, "topic orders"},
	{"producers are not told", "", func(f *Facts) { f.Topics[0].ProducersFailed = unseen }, OtherProducers, Note, "topic orders"},
	{"a transaction is open", "", func(f *Facts) { f.Topics[0].Producers = []Producer{{ID: f.Settings.Proxy.FenceID, Open: true}} }, OpenTransaction, Error, "topic orders"},

	{"a setting may not be meant", "", func(f *Facts) { f.Settings.Notes = []string{"look"} }, SettingsNote, Note, "configuration"},
	{"a host does not resolve", "", func(f *Facts) { f.Addresses[0].Failed = unseen }, AdvertisedAddress, Warning, "listener 10.0.0.9:9092"},
	{"hosts do not resolve", "", func(f *Facts) {
		a := f.Addresses[0]
		a.Failed = unseen
		b := a
		b.Host = "b"
		f.Addresses = []Address{a, b}
	}, AdvertisedAddress, Warning, "listener 10.0.0.9:9092"},
	{"a proxy hides a broker", "", func(f *Facts) { f.Proxies[0].Hidden = []string{"broker 2 is hidden"} }, BrokerHidden, Error, "proxy http://p-1"},
	{"there is no password", "", func(f *Facts) { f.PasswordFailed = unseen }, Password, Error, "upstream.sasl"},
	{"a host is this machine", "", func(f *Facts) { f.Addresses[0].IPs = []string{"127.0.0.1", "::1"} }, AdvertisedAddress, Note, "listener 10.0.0.9:9092"},
	{"a host is no address", "", func(f *Facts) { f.Addresses[0].IPs = []string{"0.0.0.0"} }, AdvertisedAddress, Error, "listener 10.0.0.9:9092"},
	{"a host is a broker's", "", func(f *Facts) { f.Addresses[0].IPs = []string{"10.0.0.2"} }, AdvertisedAddress, Error, "listener 10.0.0.9:9092"},
	{"a broker has no port", "", func(f *Facts) { f.Settings.Proxy.BrokerPorts.Last = f.Settings.Proxy.BrokerPorts.First + 2 }, BrokerHidden, Error, "broker 3"},
	{"a certificate expires", "", func(f *Facts) { f.Files[0].Expires = at.Add(time.Hour) }, Certificate, Warning, "certificates of upstream"},
	{"a broker's has expired", "", func(f *Facts) { f.Brokers[0].Expires = at.Add(-time.Hour) }, Certificate, Error, "certificate of broker 1"},
	{"files are wrong", "", func(f *Facts) { f.Files[0].Failed = unseen }, Certificate, Error, "certificates of upstream"},
	{"a name is not covered", "", func(f *Facts) { f.Files[0].Uncovered = []string{"k"} }, Certificate, Error, "certificates of upstream"},
	{"descriptors are few", "", func(f *Facts) { f.Given.Descriptors = 1024 }, Resources, Warning, "this process"},
	{"memory is little", "", func(f *Facts) { f.Given.Memory = 1 << 20 }, Resources, Warning, "this process"},
	{"descriptors cannot be seen", "", func(f *Facts) { f.Given.Descriptors = 0 }, Resources, Note, "this process"},

	{"a proxy is silent", "", func(f *Facts) { f.Proxies[0].Failed = unseen }, ProxyUnreachable, Error, "proxy http://p-1"},
	{"no proxy is named", "", func(f *Facts) { f.Proxies = nil }, ProxyUnreachable, Note, "proxies"},
	{"a proxy is not ready", "", func(f *Facts) { f.Proxies[0].NotReady = "not ready: draining" }, ProxyNotReady, Warning, "proxy http://p-1"},
	{"proxies have other rules", "", func(f *Facts) {
		f.Proxies[1].Agreement = withRules(f, `{"Rules":[{"topics":"a","mode":"off"}],"Default":"off"}`)
	}, ProxiesDiffer, Error, "rules"},
	{"one has a kind asserted", "", func(f *Facts) {
		terms := f.Settings.Terms()
		terms.BrokerKind = "kafka"
		f.Proxies[1].Agreement = agreement.Of(terms)
	}, ProxiesDiffer, Warning, "brokers.kind"},
	{"all have other rules than the file", "", func(f *Facts) {
		for i := range f.Proxies {
			f.Proxies[i].Agreement = withRules(f, `{"Rules":[],"Default":"off"}`)
		}
	}, ProxyBehind, Warning, "proxy http://p-1"},
}

func alone(t *Topic) {
	for i := range t.Partitions {
		t.Partitions[i].Replicas, t.Partitions[i].InSync = []int32{1}, []int32{1}
	}
}

func clientsLogIn(f *Facts) { f.Settings.Proxy.Credentials.ForClients = false }

func withRules(f *Facts, rules string) agreement.Agreement {
	terms := f.Settings.Terms()
	terms.Rules = json.RawMessage(rules)
	return agreement.Of(terms)
}

func TestHealthyIsGood(t *testing.T) {
	r := Judge(healthy(t, plainRules))
	for _, f := range r.Findings {
		if f.Severity != OK || f.Do != "" {
			t.Errorf("got %+v", f)
		}
	}
	if r.Worst != OK || r.Counts[OK] != len(r.Findings) {
		t.Errorf("got %s, %v", r.Worst, r.Counts)
	}
	seen := map[ID]bool{}
	for _, f := range r.Findings {
		seen[f.ID] = true
	}
	for _, c := range checks {
		if !seen[c.ID] {
			t.Errorf("%s was not looked at", c.ID)
		}
	}
}

// TestEachThingWrongIsFound, and nothing is found that its check does not list, and
// each severity that a check lists can be found.
func TestEachThingWrongIsFound(t *testing.T) {
	found := map[ID]map[Severity]bool{}
	note := func(r *Report) {
		for _, f := range r.Findings {
			if found[f.ID] == nil {
				found[f.ID] = map[Severity]bool{}
			}
			found[f.ID][f.Severity] = true
		}
	}
	note(Judge(healthy(t, plainRules)))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rules := c.rules
			if rules == "" {
				rules = plainRules
			}
			facts := healthy(t, rules)
			c.harm(facts)
			r := Judge(facts)
			note(r)
			at := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == c.id && f.Severity == c.how && f.Subject == c.subject })
			if at < 0 {
				t.Fatalf("no %s %s about %s; got %s", c.how, c.id, c.subject, above(r))
			}
			if f := r.Findings[at]; f.Seen == "" || f.Do == "" {
				t.Errorf("says too little: %+v", f)
			}
			if r.Worst.rank() < c.how.rank() {
				t.Errorf("the worst is %s", r.Worst)
			}
		})
	}
	for _, c := range checks {
		got := slices.SortedFunc(maps.Keys(found[c.ID]), func(a, b Severity) int { return a.rank() - b.rank() })
		if !slices.Equal(got, c.Severities) {
			t.Errorf("%s: found as %v, listed as %v", c.ID, got, c.Severities)
		}
	}
}

// TestWhatIsNotToldIsNotGood: a setting that a broker leaves out, and what is not judged of a
// topic with one replica.
func TestWhatIsNotToldIsNotGood(t *testing.T) {
	found := func(f *Facts, id ID) bool {
		return slices.ContainsFunc(Judge(f).Findings, func(f Finding) bool { return f.ID == id })
	}
	for id, setting := range map[ID]string{TopicUnclean: settingUnclean, TopicMinInSync: settingMinInSync,
		TopicTimestamps: settingTimestampType, TopicCompacted: settingCleanup, TopicBatchSize: settingBatchSize} {
		facts := healthy(t, plainRules)
		if !found(facts, id) {
			t.Errorf("%s: not found where %s is told", id, setting)
		}
		delete(facts.Topics[0].Configs, setting)
		if found(facts, id) {
			t.Errorf("%s: found without %s", id, setting)
		}
	}
	facts := healthy(t, plainRules)
	for i := range facts.Topics[:2] { // those under a rule
		alone(&facts.Topics[i])
		facts.Topics[i].Configs[settingMinInSync] = new("1")
	}
	if found(facts, TopicMinInSync) {
		t.Errorf("%s: found where each topic has one replica", TopicMinInSync)
	}
}

// above lists findings that are not OK.
func above(r *Report) string {
	var lines []string
	for _, f := range r.Findings {
		if f.Severity != OK {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", f.Severity, f.ID, f.Subject, f.Seen))
		}
	}
	return strings.Join(lines, "\n")
}
