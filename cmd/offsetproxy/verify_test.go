package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// storedHistory copies a history into a directory of the test's own, so that what is
// written beside it goes with the test.
func storedHistory(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../internal/verify/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestVerifyStoredHistory tells a person.
func TestVerifyStoredHistory(t *testing.T) {
	for name, want := range map[string]int{"clean": exitOK, "uncovered": exitFailed} {
		t.Run(name, func(t *testing.T) {
			file := storedHistory(t, name+".jsonl")
			got := call(t, "", "verify", "--history", file)
			if got.code != want || got.stderr != "" {
				t.Errorf("code %d, want %d; stderr %q", got.code, want, got.stderr)
			}
			golden(t, "verify-"+name, strings.ReplaceAll(got.stdout, filepath.Dir(file), "DIR"))
			_, err := os.Stat(strings.TrimSuffix(file, ".jsonl") + ".html")
			if drawn := err == nil; drawn != (want != exitOK) {
				t.Errorf("there is a picture: %v", drawn)
			}
		})
	}
}

// TestVerifyTellsPrograms in one JSON object.
func TestVerifyTellsPrograms(t *testing.T) {
	for name, verified := range map[string]bool{"clean": true, "uncovered": false} {
		file := storedHistory(t, name+".jsonl")
		picture := filepath.Join(t.TempDir(), "a picture.html")
		got := call(t, "", "verify", "--history", file, "--output", "json", "--picture", picture)
		var report verifyJSON
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if report.Verified != verified || (report.ViolationsTotal == 0) != verified || (len(report.Violations) == 0) != verified ||
			(report.Linearizable == "yes") != verified || (got.code == exitOK) != verified || (report.Picture == "") != verified {
			t.Errorf("%s: code %d, got %+v", name, got.code, report)
		}
		if report.Operations == 0 || report.Seed != 7 || report.History != file || report.Records == 0 || report.Seconds == 0 {
			t.Errorf("%s: got %+v", name, report)
		}
		if _, err := os.Stat(picture); (err != nil) != verified {
			t.Errorf("%s: picture: %v", name, err)
		}
	}
}

func TestVerifyCannotCheck(t *testing.T) {
	whole, err := os.ReadFile(storedHistory(t, "clean.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want int
		args []string
	}{
		"no history":             {exitUsage, nil},
		"a file that is not":     {exitUnchecked, []string{"--history", filepath.Join(t.TempDir(), "none")}},
		"a history that is cut":  {exitUnchecked, []string{"--history", cut}},
		"a topic and no proxy":   {exitUsage, []string{"--history", cut, "--topic", "t"}},
		"a proxy and no topic":   {exitUsage, []string{"--history", cut, "--bootstrap", "127.0.0.1:1"}},
		"a habit that is not":    {exitUsage, []string{"--history", cut, "--bootstrap", "127.0.0.1:1", "--topic", "t", "--habits", "x"}},
		"a directory that isn't": {exitUsage, []string{"--history", filepath.Join(cut, "x"), "--bootstrap", "127.0.0.1:1", "--topic", "t"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "", append([]string{"verify"}, c.args...)...)
			if got.code != c.want || got.stderr == "" || got.stdout != "" {
				t.Errorf("code %d, want %d; stdout %q, stderr %q", got.code, c.want, got.stdout, got.stderr)
			}
		})
	}
}

// TestVerifyARun from the command line, through the proxy of dev's kind.
func TestVerifyARun(t *testing.T) {
	b := start(t, false, "dev", "--listen", "127.0.0.1:0")
	address := strings.TrimSuffix(strings.Fields(b.await(t, has("proxy ")))[1], ",")
	file := filepath.Join(t.TempDir(), "run.jsonl")
	got := call(t, "", "verify", "--bootstrap", address, "--topic", "events", "--for", "500ms", "--settle", "0s", "--writers", "4",
		"--habits", "once,insisting", "--history", file, "--output", "json")
	var report verifyJSON
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v; stderr %q", err, got.stderr)
	}
	if got.code != exitOK || !report.Verified || report.OK == 0 || report.OperationsPerSecond == 0 {
		t.Errorf("code %d, got %+v", got.code, report)
	}
	b.stop()
	if code := b.exit(t); code != exitOK {
		t.Errorf("dev: exit code %d", code)
	}
}

// TestVerifyOfNothingButUnknowns: where nothing was promised nothing can be broken,
// which verifies nothing. What is wrong all the same is told.
func TestVerifyOfNothingButUnknowns(t *testing.T) {
	const head = `{"type":"run","run":"ab","topic":"t","proxies":["a:1"],"partitions":1,"writers":1,"seed":1}
{"type":"begin","partition":0,"offset":0}
{"type":"op","writer":0,"op":0,"partition":0,"habit":"once","expected":0,"records":1}
{"type":"try","writer":0,"op":0,"proxy":0,"start":10,"end":20,"outcome":"unknown"}
{"type":"op","writer":0,"op":1,"partition":0,"habit":"once","expected":0,"records":1}
{"type":"try","writer":0,"op":1,"proxy":0,"start":30,"end":40,"outcome":"refused","code":6}
`
	for name, c := range map[string]struct {
		rest string
		want int
		says string
	}{
		"and all may be": {`{"type":"log","partition":0,"offset":0,"names":["0/0/0"]}
{"type":"read","partition":0,"offset":1}
`, exitUnchecked, "nothing was decided: of 2 appends the fate of 1 is unknown, 1 were refused"},
		"and one is misplaced": {`{"type":"log","partition":0,"offset":0,"names":["","0/0/0"]}
{"type":"read","partition":0,"offset":2}
`, exitFailed, ""},
		"and one that was acknowledged": {`{"type":"op","writer":0,"op":2,"partition":0,"habit":"once","expected":0,"records":1}
{"type":"try","writer":0,"op":2,"proxy":0,"start":50,"end":60,"outcome":"ok","offset":0}
{"type":"log","partition":0,"offset":0,"names":["0/2/0"]}
{"type":"read","partition":0,"offset":1}
`, exitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "history.jsonl")
			if err := os.WriteFile(file, []byte(head+c.rest), 0o644); err != nil {
				t.Fatal(err)
			}
			got := call(t, "", "verify", "--history", file)
			if got.code != c.want || !strings.Contains(got.stderr, c.says) || strings.Contains(got.stdout, "\nVERIFIED: ") != (c.want == exitOK) {
				t.Errorf("code %d, want %d; stdout %q, stderr %q", got.code, c.want, got.stdout, got.stderr)
			}
		})
	}
}
