package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// exitWarnings is the program's when a doctor has warnings and no errors.
const exitWarnings = 3

// examined is what `doctor` found.
type examined struct {
	status   int
	text     string // for a test that fails
	Worst    string
	Findings []struct{ ID, Severity, Subject, Seen, Do string }
}

// modest are limits that any machine has room for.
var modest = []string{"--max-connections", "100", "--max-buffered", "16MiB", "--idle-views", "1000", "--idle-producers", "1000", "--listen", "127.0.0.1:9092"}

// examine runs doctor.
func examine(t *testing.T, args ...string) examined {
	t.Helper()
	got := runProgram(t, slices.Concat([]string{"doctor", "--output", "json"}, modest, args)...)
	e := examined{status: got.status, text: got.stdout + got.stderr}
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return e
}

// must find something of this severity about this, with what was seen; severity first,
// as in "error topic-replicas topic orders".
func (e examined) must(t *testing.T, what, seen string) {
	t.Helper()
	if !e.says(what, seen) {
		t.Errorf("no %q that says %q in\n%s", what, seen, e.text)
	}
}

func (e examined) says(what, seen string) bool {
	for _, f := range e.Findings {
		if f.Severity+" "+f.ID+" "+f.Subject == what && strings.Contains(f.Seen, seen) && (f.Do != "" || f.Severity == "ok") {
			return true
		}
	}
	return false
}

// mustEnd with this status, which is that of the worst finding.
func (e examined) mustEnd(t *testing.T, status int, worst string) {
	t.Helper()
	if e.status != status || e.Worst != worst {
		t.Errorf("got status %d, worst %q; want %d, %q:\n%s", e.status, e.Worst, status, worst, e.text)
	}
}

// TestDoctor on a healthy cluster, and on topics beside it in each of which one thing
// is wrong.
func TestDoctor(t *testing.T) {
	requireKafka(t)
	needsProgram(t)
	besideOthers(t)
	admin := adminAt(t, brokers.addresses()...)
	const good = "doctor-good"
	createTopic(t, admin, good, 1)
	at := []string{"--bootstrap", brokers.bootstrap, "--closed-network"}

	// Two proxies that agree, and have appended.
	flags := []string{"--require", good}
	first, second := startProxy(t, flags...), startProxy(t, flags...)
	dialLeader(t, first, good).mustTell(t, good, encodeBatch(conditional(0, "a")), wonAt(0))
	dialLeader(t, second, good).mustTell(t, good, encodeBatch(conditional(1, "b")), wonAt(1))
	proxies := "http://" + first.admin() + "," + second.admin()
	healthy := examine(t, slices.Concat(at, flags, []string{"--proxies", proxies, "--probe"})...)
	healthy.mustEnd(t, exitDone, "note") // this machine's address is told to clients
	for _, what := range []string{
		"bootstrap-unreachable bootstrap", "broker-unreachable brokers", "broker-version brokers", "duplicates broker 1", "producer-expiry broker 3",
		"auto-create brokers", "proxy-rights the proxy's principal", "rule-never-used rules", "topic-missing rules", "topic-replicas topics under a rule",
		"topic-min-insync topics under a rule", "topic-in-sync topics under a rule", "topic-unclean-election topics under a rule",
		"other-producers topics under a rule", "open-transaction topics under a rule", "proxies-differ proxies", "proxy-behind proxies",
	} {
		healthy.must(t, "ok "+what, "")
	}
	if !slices.ContainsFunc(healthy.Findings, func(f struct{ ID, Severity, Subject, Seen, Do string }) bool {
		return f.ID == "clock" && f.Severity == "ok" && strings.Contains(f.Subject, "controller")
	}) {
		t.Errorf("the controller's clock was not seen in\n%s", healthy.text)
	}

	t.Run("proxies differ", func(t *testing.T) {
		other := startProxy(t, "--enforce", good, "--view-max-age", "30s")
		got := examine(t, slices.Concat(at, flags, []string{"--proxies", proxies + "," + other.admin()})...)
		got.mustEnd(t, exitFailed, "error")
		got.must(t, "error proxies-differ rules", "http://"+other.admin()+": rules[0] doctor-good enforce")
		got.must(t, "error proxies-differ view_max_age", "http://"+first.admin()+", http://"+second.admin()+`: "1m0s"`)
		got.must(t, "warning proxy-behind proxy http://"+other.admin(), "rules, view_max_age")
	})
	t.Run("topics are sick", func(t *testing.T) {
		for name, configs := range map[string]map[string]*string{
			"doctor-late":    {"message.timestamp.type": new("LogAppendTime")},
			"doctor-unclean": {"unclean.leader.election.enable": new("true")},
			"doctor-hasty":   {"min.insync.replicas": new("1")},
			"doctor-compact": {"cleanup.policy": new("compact")},
			"doctor-large":   {"max.message.bytes": new("99999999")},
		} {
			createConfiguredTopic(t, admin, name, 1, configs)
		}
		createReplicatedTopic(t, admin, "doctor-alone", 1, 1, nil)
		got := examine(t, append(at, "--require", "doctor-*", "--require", "doctor-late", "--enforce", "missing-here", "--enforce", "no-such.*")...)
		got.mustEnd(t, exitFailed, "error")
		got.must(t, "note topic-timestamps topic doctor-late", "LogAppendTime")
		got.must(t, "error topic-unclean-election topic doctor-unclean", "true")
		got.must(t, "warning topic-min-insync topic doctor-hasty", "=1")
		got.must(t, "note topic-compacted topic doctor-compact", "compact")
		got.must(t, "warning topic-batch-size topic doctor-large", "99999999")
		got.must(t, "warning topic-replicas topic doctor-alone", "one replica")
		got.must(t, "warning rule-never-used rules[1] (doctor-late)", "rules[0] (doctor-*)")
		got.must(t, "warning topic-missing rules[2] (missing-here)", "missing-here")
		got.must(t, "note rule-matches-nothing rules[3] (no-such.*)", "")
		for _, f := range got.Findings {
			if f.Subject == "topic "+good && f.Severity != "ok" {
				t.Errorf("the healthy topic: got %+v", f)
			}
		}
	})
	t.Run("others write", func(t *testing.T) {
		const passed = "doctor-passed"
		createTopic(t, admin, passed, 1)
		p := passedBy(t, passed)
		got := examine(t, "--bootstrap", brokers.bootstrap, "--require", passed)
		got.mustEnd(t, exitWarnings, "warning")
		got.must(t, "warning topic-writers topics under a rule", "no authorizer")
		got.must(t, "warning other-producers topic doctor-passed", "1 producer id other")
		p()
		got = examine(t, append(at, "--require", passed)...)
		got.must(t, "error open-transaction topic doctor-passed", "1 partition")
	})
}

// doctorOfRights tells who may write, by ACLs: whom ACLs let may go around proxies.
func doctorOfRights(t *testing.T, s *secured) {
	const topic, password = "doctor-acl", "password"
	configs := map[string]*string{"min.insync.replicas": new("2")}
	if created, err := s.admin.CreateTopic(t.Context(), 1, securedBrokers, configs, topic); err != nil || created.Err != nil {
		t.Fatalf("create topic: %v, %v", err, created.Err)
	}
	file := filepath.Join(t.TempDir(), password)
	as := func(user string, flags ...string) examined {
		t.Helper()
		if err := os.WriteFile(file, []byte(passwordOf(user)), 0o600); err != nil {
			t.Fatal(err)
		}
		got := examine(t, append([]string{"--bootstrap", s.Bootstrap(), "--require", topic,
			"--sasl-mechanism", "PLAIN", "--sasl-user", user, "--sasl-password-file", file}, flags...)...)
		if strings.Contains(got.text, passwordOf(user)) {
			t.Error("the report holds the password")
		}
		return got
	}
	s.allow(t, "proxy", on{topic, viewRights}, on{"", []kadm.ACLOperation{kadm.OpDescribeConfigs, kadm.OpDescribe}})
	s.allow(t, "writer", on{topic, []kadm.ACLOperation{kadm.OpWrite}})
	known := []string{"--writers", "User:writer", "--probe"}
	// The topic's leader may be yet to lead.
	waitFor(t, "a healthy cluster", 30*time.Second, func() error {
		if got := as("proxy", known...); got.status != exitDone {
			return &exitStatusError{got}
		}
		return nil
	})
	got := as("proxy", known...)
	got.must(t, "note topic-writers topic "+topic, "User:writer (by name)")
	got.must(t, "note super-users brokers", "super.users is set")
	got.must(t, "ok duplicates broker 2", "log_append_time")
	got.must(t, "ok proxy-rights the proxy's principal", "User:proxy")
	as("proxy").must(t, "warning topic-writers topic "+topic, "User:writer")
	as("proxy", "--sasl-for-clients").must(t, "error topic-writers topic "+topic, "User:writer")

	strangers := kadm.NewACLs().Allow("User:reader").AllowHosts("*").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpWrite).Topics("doctor-")
	if _, err := s.admin.CreateACLs(t.Context(), strangers); err != nil {
		t.Fatal(err)
	}
	s.awaitRights(t, "reader", on{topic, []kadm.ACLOperation{kadm.OpWrite}})
	got = as("proxy", known...)
	got.mustEnd(t, exitFailed, "error")
	got.must(t, "error topic-writers topic "+topic, "User:reader (by prefix doctor-) may write")
	as("proxy", "--closed-network").must(t, "ok topic-writers topics under a rule", "on your word")

	got = as("narrow")
	got.mustEnd(t, exitFailed, "error")
	got.must(t, "error proxy-rights cluster", "User:narrow lacks DESCRIBE_CONFIGS")
	got.must(t, "error proxy-rights topic "+topic, "User:narrow lacks DESCRIBE")
	got.must(t, "error producer-expiry broker 1", "cannot be read")

	// The cluster is this test's own by now.
	short := kadm.AlterConfig{Op: kadm.SetConfig, Name: "producer.id.expiration.ms", Value: new("600000")}
	if changed, err := s.admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{short}); err != nil || changed[0].Err != nil {
		t.Fatalf("%v, %v", err, changed)
	}
	// Brokers take the setting over one after the other.
	waitFor(t, "brokers that forget too soon", 30*time.Second, func() error {
		got = as("proxy", "--closed-network")
		for _, broker := range []string{"1", "2"} {
			if !got.says("error producer-expiry broker "+broker, "no topic is served: half of producer.id.expiration.ms (10m0s)") {
				return &exitStatusError{got}
			}
		}
		return nil
	})
	got.mustEnd(t, exitFailed, "error")
}

// exitStatusError is a report that was not waited for.
type exitStatusError struct{ got examined }

func (e *exitStatusError) Error() string { return e.got.text }

// passedBy has a transaction write a topic at the brokers, which is left open until the
// test ends once what is returned is called, and is committed before.
func passedBy(t *testing.T, topic string) (again func()) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.addresses()...), kgo.TransactionalID(topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close) // which leaves the transaction to its timeout
	write := func() {
		t.Helper()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("around")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := client.EndTransaction(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	return write
}
