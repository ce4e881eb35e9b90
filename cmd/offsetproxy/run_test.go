package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// asProgram in the environment makes the test binary the program itself.
const asProgram = "OFFSETPROXY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// outcome is what one run of the program left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

func call(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

// golden compares with testdata/<name>.golden; -rewrite replaces it, for a
// person to read the difference.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"help", nil},
		{"help-serve", []string{"serve", "--help"}},
		{"help-append", []string{"append", "--help"}},
		{"help-demo", []string{"demo", "--help"}},
		{"help-verify", []string{"verify", "--help"}},
		{"help-doctor", []string{"doctor", "--help"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			got := call(t, "", c.args...)
			if got.code != exitOK || got.stderr != "" {
				t.Errorf("code %d, stderr %q", got.code, got.stderr)
			}
			golden(t, c.golden, got.stdout)
		})
	}
}

func TestMistakes(t *testing.T) {
	badConfig := filepath.Join("testdata", "bad.yaml")
	missing := filepath.Join("testdata", "missing.yaml")
	for _, c := range []struct {
		golden string
		code   int
		args   []string
	}{
		{"no-such-command", exitUsage, []string{"bogus"}},
		{"flags-missing", exitUsage, []string{"append", "--topic", "t"}},
		{"expect-negative", exitUsage, []string{"append", "--bootstrap", "127.0.0.1:1", "--topic", "t", "--expect=-1", "v"}},
		{"header-reserved", exitUsage, []string{"append", "--bootstrap", "127.0.0.1:1", "--topic", "t", "--expect=1", "--header", "append-id=1", "v"}},
		{"connection-refused", exitFailed, []string{"next", "--bootstrap", "127.0.0.1:1", "--topic", "t"}},
		{"config-bad", exitUsage, []string{"check-config", badConfig}},
		{"config-missing", exitUsage, []string{"serve", "--config", missing}},
		{"config-and-flags", exitUsage, []string{"serve", "--config", missing, "--require", "a"}},
		{"flags-bad", exitUsage, []string{"serve", "--bootstrap", "k", "--max-frame", "3MB", "--require", "[a", "--enforce", "b replay=yes"}},
		{"nothing-to-serve", exitUsage, []string{"serve"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			got := call(t, "", c.args...)
			if got.code != c.code || got.stdout != "" {
				t.Errorf("code %d, want %d; stdout %q", got.code, c.code, got.stdout)
			}
			golden(t, c.golden, got.stderr)
		})
	}
}

func TestCheckConfig(t *testing.T) {
	got := call(t, "", "check-config", "../../deploy/offsetproxy.yaml")
	if got.code != exitOK {
		t.Fatalf("code %d: %s", got.code, got.stderr)
	}
	golden(t, "config-good", got.stdout)

	var report checkReport
	got = call(t, "", "check-config", "-o", "json", "testdata/bad.yaml")
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if got.code != exitUsage || report.OK || len(report.Problems) != 4 || report.Problems[1].Line != 4 {
		t.Errorf("code %d, report %+v", got.code, report)
	}
}

// Without a proxy nothing checks the condition, and append has to notice.
func TestAppendAndNextWithoutAProxy(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	at := []string{"--bootstrap", cluster.Addrs()[0], "--topic", "events"}
	next := func(want string) {
		t.Helper()
		if got := call(t, "", append([]string{"next"}, at...)...); got.code != exitOK || got.stdout != want+"\n" {
			t.Errorf("next: got %+v, want %s", got, want)
		}
	}
	next("0")
	if got := call(t, "from stdin", append([]string{"append", "--expect", "0"}, at...)...); got.code != exitOK || got.stdout != "0\n" {
		t.Errorf("append at the end: got %+v", got)
	}
	next("1")
	if got := call(t, "", append([]string{"append", "--expect", "0", "v"}, at...)...); got.code != exitElsewhere || got.stdout != "1\n" || got.stderr == "" {
		t.Errorf("append at a taken offset: got %+v, want code %d and offset 1", got, exitElsewhere)
	}
	got := call(t, "", "next", "--bootstrap", cluster.Addrs()[0], "--topic", "nowhere")
	if got.code != exitFailed {
		t.Errorf("missing topic: got %+v", got)
	}
	golden(t, "topic-missing", got.stderr)
}

func TestVersion(t *testing.T) {
	if got := call(t, "", "version"); !regexp.MustCompile(`^offsetproxy \S+ .*go1\.\S+ \w+/\w+\n$`).MatchString(got.stdout) {
		t.Errorf("got %+v", got)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d): got %s, want %s", n, got, want)
		}
	}
}
