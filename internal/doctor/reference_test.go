package doctor

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write golden files and docs/doctor.md anew")

const (
	beginChecks = "<!-- checks:begin -->\n"
	endChecks   = "<!-- checks:end -->\n"
)

// reference is the part of docs/doctor.md that is made from the checks.
func reference() string {
	var b strings.Builder
	for _, c := range checks {
		var above []string
		for _, s := range c.Severities {
			if s != OK {
				above = append(above, string(s))
			}
		}
		fmt.Fprintf(&b, "\n### %s\n\n**%s** (%s). %s\n\n*What to do:* %s\n", c.ID, c.Title, strings.Join(above, ", "), c.Means, c.Do)
	}
	return b.String()
}

// TestReferenceIsThatOfTheChecks; -rewrite makes it so.
func TestReferenceIsThatOfTheChecks(t *testing.T) {
	const file = "../../docs/doctor.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), beginChecks)
	got, after, also := strings.Cut(rest, endChecks)
	if !ok || !also {
		t.Fatalf("%s has no place for the checks", file)
	}
	want := reference() + "\n"
	if *rewrite {
		if err := os.WriteFile(file, []byte(before+beginChecks+want+endChecks+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s is not that of the checks: go test ./internal/doctor -run Reference -rewrite", file)
	}
}

func TestChecksAreExplained(t *testing.T) {
	seen := map[ID]bool{}
	for _, c := range checks {
		if seen[c.ID] || c.Title == "" || c.Means == "" || c.Do == "" {
			t.Errorf("%s is there twice, or lacks a text", c.ID)
		}
		seen[c.ID] = true
		if !slices.IsSortedFunc(c.Severities, func(a, b Severity) int { return a.rank() - b.rank() }) || c.Severities[0] != OK {
			t.Errorf("%s: severities %v", c.ID, c.Severities)
		}
	}
}

// TestFormOfReports is what scripts read: fields may be added, and no more.
func TestFormOfReports(t *testing.T) {
	facts := healthy(t, plainRules)
	facts.Topics[0].Configs[settingUnclean] = new("true")
	facts.Seeds[0].Failed = unseen
	report := Judge(facts)
	report.Findings = report.Findings[:3]
	got, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "report.golden")
	if *rewrite {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWritersAreThoseOfBrokers(t *testing.T) {
	const write, all, read = kmsg.ACLOperationWrite, kmsg.ACLOperationAll, kmsg.ACLOperationRead
	for _, tc := range []struct {
		name string
		acls []ACL
		want []string
	}{
		{"none", nil, nil},
		{"by name, prefix and all, and those who only read", []ACL{
			{Name: "orders", Principal: "User:a", Host: "*", Operation: write},
			{Name: "ord", Prefixed: true, Principal: "User:b", Host: "*", Operation: all},
			{Name: "*", Principal: "User:c", Host: "10.1.1.1", Operation: write},
			{Name: "orders", Principal: "User:d", Host: "*", Operation: read},
			{Name: "ord", Principal: "User:e", Host: "*", Operation: write},
			{Name: "orders2", Prefixed: true, Principal: "User:f", Host: "*", Operation: write},
			{Name: "*", Prefixed: true, Principal: "User:g", Host: "*", Operation: write},
		}, []string{"User:a (by name)", "User:b (by prefix ord)", "User:c (on all topics from 10.1.1.1)"}},
		{"several ways", []ACL{
			{Name: "*", Principal: "User:a", Host: "*", Operation: write},
			{Name: "orders", Principal: "User:a", Host: "*", Operation: write},
			{Name: "orders", Principal: "User:a", Host: "*", Operation: all},
		}, []string{"User:a (by name, on all topics)"}},
		{"denied", []ACL{
			{Name: "orders", Principal: "User:a", Host: "*", Operation: write},
			{Name: "ord", Prefixed: true, Principal: "User:a", Host: "*", Operation: all, Deny: true},
			{Name: "orders", Principal: "User:b", Host: "*", Operation: write},
			{Name: "orders", Principal: "User:b", Host: "10.1.1.1", Operation: write, Deny: true},
			{Name: "orders", Principal: "User:c", Host: "*", Operation: write},
			{Name: "orders", Principal: "User:c", Host: "*", Operation: read, Deny: true},
		}, []string{"User:b (by name)", "User:c (by name)"}},
		{"all are denied", []ACL{
			{Name: "orders", Principal: "User:a", Host: "*", Operation: write},
			{Name: "*", Principal: "User:*", Host: "*", Operation: write, Deny: true},
		}, nil},
		{"everybody", []ACL{{Name: "*", Principal: "User:*", Host: "*", Operation: all}}, []string{"everybody (User:*) (on all topics)"}},
	} {
		var got []string
		for _, w := range whoMay(write, "orders", tc.acls) {
			got = append(got, w.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestLiterals(t *testing.T) {
	s := settingsOf(t, "rules: [{topics: a, mode: off}, {topics: 'a*', mode: off}, {topics_regexp: b, mode: off}, {topics_regexp: 'b.', mode: off}, {topics: 'a/b', mode: off}]\n")
	if got, want := NamedTopics(&s.Proxy), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDifferencesOfRulesAreNamed, however the rules differ.
func TestDifferencesOfRulesAreNamed(t *testing.T) {
	const a, b = `{"topics":"a","mode":"require","error_code":1}`, `{"topics_regexp":"b","mode":"enforce","error_code":1}`
	set := func(rules ...string) string {
		return `{"Rules":[` + strings.Join(rules, ",") + `],"Default":"off"}`
	}
	for _, tc := range []struct {
		name, one, other string
		want             []string
	}{
		{"one more", set(a), set(a, b), []string{"p-1: 1 rules, in another order or fewer", "p-2: rules[1] /b/ enforce"}},
		{"no rules", set(), set(a), []string{"p-1: no rules", "p-2: rules[0] a require"}},
		{"another order", set(a, b), set(b, a), []string{"p-1: 2 rules, in another order", "p-2: 2 rules, in another order"}},
		{"an option", set(a), set(strings.Replace(a, "1", "44", 1)), []string{`p-1: rules[0] {"topics":"a","mode":"require","error_code":1}`, `"error_code":44`}},
		{"the default", set(a), strings.Replace(set(a), "off", "observe", 1), []string{"p-1: default_mode off", "p-2: default_mode observe"}},
	} {
		facts := healthy(t, plainRules)
		facts.Proxies[0].Agreement, facts.Proxies[1].Agreement = withRules(facts, tc.one), withRules(facts, tc.other)
		found := above(Judge(facts))
		for _, want := range tc.want {
			if !strings.Contains(found, strings.Replace(want, "p-", "http://p-", 1)) {
				t.Errorf("%s: no %q in\n%s", tc.name, want, found)
			}
		}
	}
}
