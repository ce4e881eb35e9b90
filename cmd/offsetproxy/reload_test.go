package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

// configFile is a configuration that tests write anew.
type configFile struct {
	name, rest string
}

func newConfigFile(t *testing.T, rest string) *configFile {
	return &configFile{filepath.Join(t.TempDir(), "offsetproxy.yaml"), rest}
}

// write replaces the file as a whole.
func (f *configFile) write(t *testing.T, rules string) {
	t.Helper()
	next := f.name + ".next"
	if err := os.WriteFile(next, []byte(f.rest+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, f.name); err != nil {
		t.Fatal(err)
	}
}

// metricOf is the value of the first series whose line begins with this.
func metricOf(t *testing.T, admin, series string) string {
	t.Helper()
	_, body := get(t, "http://"+admin+"/metrics")
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + `.* (\S+)$`).FindStringSubmatch(body)
	if line == nil {
		t.Fatalf("no %s in\n%s", series, body)
	}
	return line[1]
}

// TestSIGHUPChangesRules: a file that is read again counts from then on, a wrong
// one changes nothing, and what waits for a restart is named.
func TestSIGHUPChangesRules(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	file := newConfigFile(t, "bootstrap: "+cluster.Addrs()[0]+"\nlisten: 127.0.0.1:0\nbrokers: {kind: kfake}\nmetrics: {listen: 127.0.0.1:0}\n")
	file.write(t, "")
	p := startProcess(t, "serve", "--config", file.name, "--no-watch", "--log-format", "json")
	told := p.await(t, has("must show the same agreement"))
	serving := p.awaitServing(t)
	appendAt := func(expect string) int {
		return call(t, "", "append", "--bootstrap", serving.Listen, "--topic", "events", "--expect", expect, "v").code
	}
	reload := func(rules string, parts ...string) string {
		t.Helper()
		file.write(t, rules)
		p.signal(t, syscall.SIGHUP)
		return p.await(t, has(parts...))
	}
	count := func(series, want string) {
		t.Helper()
		if got := metricOf(t, serving.Admin, series); got != want {
			t.Errorf("%s: got %s, want %s", series, got, want)
		}
	}
	const (
		taken   = `offsetproxy_config_reloads_total{result="taken"}`
		refused = `offsetproxy_config_reloads_total{result="refused"}`
		failed  = "offsetproxy_config_reload_failed"
	)
	shown := func() agreementShown {
		t.Helper()
		status, body := get(t, "http://"+serving.Admin+agreementPath)
		var shown agreementShown
		if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
		if a, err := agreement.Parse([]byte(body)); err != nil || !reflect.DeepEqual(a, compacted(t, shown.Agreement)) {
			t.Errorf("read as %+v, %v", a, err)
		}
		count(`offsetproxy_agreement{hash="`+string(shown.Hash)+`"`, "1")
		return shown
	}
	if code := appendAt("0"); code != exitOK {
		t.Errorf("without a rule: exit code %d", code)
	}
	first := shown()
	if !strings.Contains(told, string(first.Hash)) {
		t.Errorf("the agreement is %s, and the log said %s", first.Hash, told)
	}
	count(failed, "0")
	line := reload("rules: [{topics: events, mode: require}]\n", "other rules are in force", `"level":"INFO"`)
	if code := appendAt("0"); code != exitRefused {
		t.Errorf("under the rule: exit code %d, want %d", code, exitRefused)
	}
	if code := appendAt("1"); code != exitOK {
		t.Errorf("under the rule: exit code %d", code)
	}
	count(taken, "1")
	second := shown()
	differences := agreement.Compare([]agreement.Shown{{Proxy: "before", Agreement: first.Agreement}, {Proxy: "now", Agreement: second.Agreement}})
	if len(differences) != 1 || differences[0].Part != agreement.RulesPart || !second.Since.After(first.Since) {
		t.Errorf("shown since %v, differing in %+v, want the rules alone", second.Since, differences)
	}
	if !strings.Contains(line, `"agreement":"`+string(second.Hash)+`","agreement_before":"`+string(first.Hash)) {
		t.Errorf("the agreement is %s, and was %s; the log said %s", second.Hash, first.Hash, line)
	}
	if got := metricOf(t, serving.Admin, "offsetproxy_rules_since_seconds{hash="); got == "0" {
		t.Error("no time since when the rules are in force")
	}
	count("offsetproxy_rules_settling", "0")

	line = reload("rules: [{topics: events, mode: requires}]\nview_max_age: long\n", "configuration refused", "send SIGHUP again", `"level":"ERROR"`)
	for _, want := range []string{"line 5: rules[0].mode", "requires", "line 6: view_max_age"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	count(failed, "1")
	count(refused, "1")
	if got := shown(); got.Hash != second.Hash || !got.Since.Equal(second.Since) {
		t.Errorf("after a wrong file: shown %s since %v", got.Hash, got.Since)
	}
	if code := appendAt("0"); code != exitRefused {
		t.Errorf("after a wrong file: exit code %d, want %d", code, exitRefused)
	}

	reload("rules: [{topics: events, mode: require}]\nlimits: {max_topics: 7}\nview_max_age: 7s\n", "its rules are those in force")
	p.await(t, has("take effect after a restart", `"limits.max_topics","view_max_age"`, `"level":"WARN"`))
	count(failed, "0")
	count(taken, "2")
	if got := shown(); got.Hash != second.Hash {
		t.Errorf("settings that wait for a restart are shown as in force: %s", got.Hash)
	}
	reload("rules: [{topics: nothing, mode: require}]\n", "other rules are in force")
	if code := appendAt("0"); code != exitElsewhere {
		t.Errorf("when the rule has gone: exit code %d, want %d", code, exitElsewhere)
	}
	if err := os.Remove(file.name); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGHUP)
	p.await(t, has("configuration refused", "no such file"))
	p.signal(t, syscall.SIGTERM)
	if code := p.exit(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// compacted is a with its values as they are hashed.
func compacted(t *testing.T, a agreement.Agreement) agreement.Agreement {
	t.Helper()
	text, err := json.Marshal(a) // which compacts them
	if err != nil {
		t.Fatal(err)
	}
	var got agreement.Agreement
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestDevEndsWithItsTerminal: it has no file to read again.
func TestDevEndsWithItsTerminal(t *testing.T) {
	// Under nohup the tests ignore the signal, and what they start would too: it
	// has the default again for what a process that catches it starts.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	p := startProcess(t, "dev", "--listen", "127.0.0.1:0", "--log-level", "info")
	p.await(t, has("broker found"))
	p.signal(t, syscall.SIGHUP)
	if code := p.exit(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestSIGHUPWithoutAFile: a proxy whose settings came from flags goes on.
func TestSIGHUPWithoutAFile(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	p := startProcess(t, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0", "--log-format", "json")
	p.awaitServing(t)
	p.signal(t, syscall.SIGHUP)
	p.await(t, has(`"level":"WARN"`, "settings came from flags"))
	p.signal(t, syscall.SIGTERM)
	if code := p.exit(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
