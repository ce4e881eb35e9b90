package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/internal/localusers"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// What docs/security.md shows is what the program takes.
func TestSecurityDocumentIsGood(t *testing.T) {
	document, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	configurations := 0
	for _, block := range yamlBlock.FindAllStringSubmatch(string(document), -1) {
		if strings.HasPrefix(block[1], "# users.yaml") {
			file := filepath.Join(t.TempDir(), "users.yaml")
			if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			if store, err := localusers.Load(file); err != nil || store.Len() != 2 {
				t.Errorf("the users file is refused: %v", err)
			}
			continue
		}
		configurations++
		settings, err := config.Parse("security.md", []byte(block[1]))
		if err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		for _, note := range settings.Notes {
			if !strings.Contains(note, "no rule") && !strings.Contains(note, "advertised_host") {
				t.Errorf("note %q on\n%s", note, block[1])
			}
		}
	}
	if configurations != 5 {
		t.Errorf("got %d configurations, want 5", configurations)
	}
}

// An entry that the command makes lets the user in by each mechanism, and holds no
// password.
func TestUserLogsIn(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	made := call(t, "let-me-in\n", "user", "anna")
	if made.code != 0 || strings.Contains(made.stdout, "let-me-in") || !strings.HasPrefix(made.stdout, "anna:\n  SCRAM-SHA-256:\n") {
		t.Fatalf("got %+v", made)
	}
	users := filepath.Join(t.TempDir(), "users.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(users, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(made.stdout)
	file := newConfigFile(t, "bootstrap: "+cluster.Addrs()[0]+`
brokers: {kind: kfake}
listeners:
- {name: gate, listen: '127.0.0.1:0', sasl: {mechanisms: [PLAIN, SCRAM-SHA-256, SCRAM-SHA-512], users_file: `+users+`}}
`)
	file.write(t, "")
	b := start(t, true, "serve", "--config", file.name, "--log-format", "json")
	var line struct{ Listen string }
	if err := json.Unmarshal([]byte(b.await(t, has(`"msg":"serving"`))), &line); err != nil {
		t.Fatal(err)
	}
	send := func(login kgo.Opt) error {
		t.Helper()
		client, err := kgo.NewClient(kgo.SeedBrokers(line.Listen), login, kgo.RecordRetries(1))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return client.ProduceSync(ctx, &kgo.Record{Topic: "events", Value: []byte("v")}).FirstErr()
	}
	for _, login := range []kgo.Opt{
		kgo.SASL(plain.Auth{User: "anna", Pass: "let-me-in"}.AsMechanism()),
		kgo.SASL(scram.Auth{User: "anna", Pass: "let-me-in"}.AsSha256Mechanism()),
		kgo.SASL(scram.Auth{User: "anna", Pass: "let-me-in"}.AsSha512Mechanism()),
	} {
		if err := send(login); err != nil {
			t.Errorf("got %v, want to be let in", err)
		}
	}
	// Users that change are taken over; what is wrong is not.
	write("anna: {password: hush-hush")
	b.await(t, has("users file refused"))
	write("bert: {password: hush-hush}")
	b.await(t, has("users file read again"))
	if err := send(kgo.SASL(plain.Auth{User: "anna", Pass: "let-me-in"}.AsMechanism())); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("got %v for a user who is none any more", err)
	}
	if err := send(kgo.SASL(plain.Auth{User: "bert", Pass: "hush-hush"}.AsMechanism())); err != nil {
		t.Errorf("got %v for a new user", err)
	}
}

func TestUsersThatAreNotMade(t *testing.T) {
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"user", "anna"}},
		{"\n", []string{"user", "anna"}},
		{"x\n", []string{"user", "anna", "--mechanism", "PLAIN"}},
		{"x\n", []string{"user", "anna", "--iterations", "100"}},
		{"x\n", []string{"user", "an\x01na"}},
	} {
		if got := call(t, c.stdin, c.args...); got.code != exitUsage || got.stdout != "" {
			t.Errorf("%q: got %+v, want exit status 2", c.args, got)
		}
	}
}
