package main

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/doctor"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

// examined is what doctor found.
type examined struct {
	code   int
	report doctor.Report
}

// examine runs doctor.
func examine(t *testing.T, args ...string) examined {
	t.Helper()
	got := call(t, "", append([]string{"doctor", "--output", "json"}, args...)...)
	e := examined{code: got.code}
	if err := json.Unmarshal([]byte(got.stdout), &e.report); err != nil {
		t.Fatalf("code %d, %v: %s%s", got.code, err, got.stdout, got.stderr)
	}
	return e
}

// must find this.
func (e examined) must(t *testing.T, how doctor.Severity, id doctor.ID, subject string) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(e.report.Findings, func(f doctor.Finding) bool {
		return f.ID == id && f.Severity == how && f.Subject == subject
	})
	if i < 0 {
		t.Errorf("no %s %s about %s in %+v", how, id, subject, e.report.Findings)
		return doctor.Finding{}
	}
	return e.report.Findings[i]
}

func TestDoctorOnTheEmbeddedCluster(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1, "__offsetproxy_probe": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	at := []string{"--bootstrap", strings.Join(cluster.Addrs(), ","), "--listen", "127.0.0.1:19999", "--max-connections", "100", "--max-buffered", "16MiB", "--idle-views", "1000", "--idle-producers", "1000"}
	got := examine(t, append(at, "--require", "events", "--require", "lost", "--enforce", "no-*", "--probe")...)
	if got.code != exitWarnings || got.report.Worst != doctor.Warning || got.report.Cluster != "embedded" {
		t.Errorf("code %d, worst %s, cluster %q", got.code, got.report.Worst, got.report.Cluster)
	}
	got.must(t, doctor.OK, doctor.BrokerUnreachable, "brokers")
	got.must(t, doctor.OK, doctor.BootstrapUnreachable, "bootstrap")
	got.must(t, doctor.OK, doctor.BrokerVersion, "brokers")
	got.must(t, doctor.Warning, doctor.TopicMissing, "rules[1] (lost)")
	got.must(t, doctor.Note, doctor.RuleMatchesNothing, "rules[2] (no-*)")
	got.must(t, doctor.Warning, doctor.TopicWriters, "topics under a rule")
	got.must(t, doctor.OK, doctor.Resources, "this process")
	if f := got.must(t, doctor.OK, doctor.Duplicates, "broker 0"); !strings.Contains(f.Seen, "log_start_offset") {
		t.Errorf("got %+v", f)
	}
	got.must(t, doctor.Note, doctor.ProducerExpiry, "broker 0")
	text := call(t, "", append([]string{"doctor"}, append(at, "--observe", "*", "--broker-kind", "kfake")...)...)
	if text.code != exitOK || !strings.HasSuffix(text.stdout, "ok\n") || !strings.Contains(text.stdout, "do: ") {
		t.Errorf("an observed topic: code %d\n%s%s", text.code, text.stdout, text.stderr)
	}
}

// TestDoctorWithoutACluster: what is not there is an error, and so is one who says
// nothing; doctor ends in time.
func TestDoctorWithoutACluster(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	nobody := "127.0.0.1:1"
	got := examine(t, "--bootstrap", nobody, "--bootstrap", silent.Addr().String(), "--require", "a", "--timeout", "2s", "--proxies", "http://"+nobody+","+silent.Addr().String())
	if got.code != exitFailed {
		t.Errorf("code %d", got.code)
	}
	for _, address := range []string{nobody, silent.Addr().String()} {
		got.must(t, doctor.Error, doctor.BootstrapUnreachable, "bootstrap "+address)
		got.must(t, doctor.Error, doctor.ProxyUnreachable, "proxy http://"+address)
	}
}

func TestDoctorRefusesWhatServeRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no brokers":     nil,
		"file and flags": {"--config", "testdata/missing.yaml", "--require", "a"},
		"no such file":   {"--config", "testdata/missing.yaml", "--probe"},
		"a wrong rule":   {"--bootstrap", "k:1", "--require", "[a"},
		"no time":        {"--bootstrap", "k:1", "--timeout", "0s"},
	} {
		if got := call(t, "", append([]string{"doctor"}, args...)...); got.code != exitUsage || got.stdout != "" || got.stderr == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestDoctorFindsNoPassword: what serve does not start without is a finding.
func TestDoctorFindsNoPassword(t *testing.T) {
	got := examine(t, "--bootstrap", "127.0.0.1:1", "--sasl-mechanism", "PLAIN", "--sasl-user", "a", "--sasl-password-file", "testdata/missing", "--timeout", "2s")
	if f := got.must(t, doctor.Error, doctor.Password, "upstream.sasl"); !strings.Contains(f.Seen, "testdata/missing") || got.code != exitFailed {
		t.Errorf("code %d, got %+v", got.code, f)
	}
}

// TestDoctorComparesProxies: two that agree, and then one that has taken over other
// rules.
func TestDoctorComparesProxies(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	const rules = "rules: [{topics: events, mode: require}]\n"
	settings := "bootstrap: " + cluster.Addrs()[0] + "\nlisten: 127.0.0.1:0\nbrokers: {kind: kfake}\nmetrics: {listen: 127.0.0.1:0}\nlimits: {max_connections: 100}\n"
	var files []*configFile
	var processes []*process
	var proxies []string
	for range 2 {
		file := newConfigFile(t, settings)
		file.write(t, rules)
		p := startProcess(t, "serve", "--config", file.name, "--no-watch", "--log-format", "json")
		files, processes = append(files, file), append(processes, p)
		proxies = append(proxies, "http://"+p.awaitServing(t).Admin)
	}
	ask := []string{"--config", files[0].name, "--proxies", strings.Join(proxies, ","), "--closed-network"}
	got := examine(t, ask...)
	got.must(t, doctor.OK, doctor.ProxiesDiffer, "proxies")
	got.must(t, doctor.OK, doctor.ProxyBehind, "proxies")
	got.must(t, doctor.OK, doctor.ProxyNotReady, "proxies")
	got.must(t, doctor.OK, doctor.TopicWriters, "topics under a rule")

	files[1].write(t, "rules: [{topics: events, mode: enforce}]\n")
	processes[1].signal(t, syscall.SIGHUP)
	processes[1].await(t, has("other rules are in force"))
	got = examine(t, ask...)
	if got.code != exitFailed {
		t.Errorf("code %d", got.code)
	}
	f := got.must(t, doctor.Error, doctor.ProxiesDiffer, "rules")
	for _, want := range []string{proxies[0] + ": rules[0] events require", proxies[1] + ": rules[0] events enforce"} {
		if !strings.Contains(f.Seen, want) {
			t.Errorf("no %q in %q", want, f.Seen)
		}
	}
	got.must(t, doctor.Warning, doctor.ProxyBehind, "proxy "+proxies[1])
	for _, p := range processes {
		p.signal(t, syscall.SIGTERM)
		if code := p.exit(t); code != exitOK {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestReportsMoveNoTerminal, whatever brokers and proxies call themselves.
func TestReportsMoveNoTerminal(t *testing.T) {
	var text strings.Builder
	report := &doctor.Report{Findings: []doctor.Finding{{ID: doctor.TopicWriters, Severity: doctor.Error, Subject: "topic a\x1b[2J", Seen: "User:é\x9b31m may\nwrite\u202e", Do: "look\a"}}}
	if err := writeReport(&text, report, false); err != nil {
		t.Fatal(err)
	}
	if got, want := text.String(), "topic a�[2J: User:é�31m may write�\n"; !strings.Contains(got, want) || strings.ContainsAny(got, "\x1b\a\u202e\u009b") {
		t.Errorf("got %q, want it to hold %q", got, want)
	}
}
