package config

import (
	"reflect"
	"slices"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
)

func effective(t *testing.T, text string) Effective {
	t.Helper()
	settings, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return settings.Effective()
}

func TestDifferencesAreNamedAsInTheFile(t *testing.T) {
	const least = "bootstrap: k:1\n"
	before := effective(t, least)
	for _, c := range []struct {
		text string
		want []string
	}{
		{least + "rules: [{topics: a, mode: require}]\ndefault_mode: observe\n", nil},
		{"bootstrap: [k:1, k:2]\n", []string{"bootstrap"}},
		{least + "listen: 127.0.0.1:1000\n", []string{"broker_ports", "listen"}},
		{least + "node_ports: {7: 99}\n", []string{"node_ports"}},
		{least + "limits: {max_topics: 7}\nview_max_age: 3s\n", []string{"limits.max_topics", "view_max_age"}},
		{least + "brokers: {kind: kafka, assert: {producer_id_expiration: 2h}}\n", []string{"brokers.assert.producer_id_expiration", "brokers.kind"}},
		{least + "upstream: {sasl: {mechanism: PLAIN, user: u, password_env: E}}\n", []string{"upstream.sasl"}},
		{least + "log: {level: debug, format: json}\nmetrics: {listen: 127.0.0.1:1}\n", []string{"log.format", "log.level", "metrics.listen"}},
		{least + "metrics: {per_topic: true}\n", []string{"metrics.max_topics", "metrics.per_topic"}},
		{least + "metrics: {listen: 127.0.0.1:1, pprof: true}\n", []string{"metrics.listen", "metrics.pprof"}},
	} {
		after := effective(t, c.text)
		if got := before.Differences(after); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
		if got := after.Differences(before); !slices.Equal(got, c.want) {
			t.Errorf("%s, the other way: got %q, want %q", c.text, got, c.want)
		}
	}
}

// TestNoSettingIsForgottenInDifferences: a setting that is added to Effective and
// not compared would be changed by nobody, in silence.
func TestNoSettingIsForgottenInDifferences(t *testing.T) {
	apart := map[string]bool{"Rules": true, "DefaultMode": true, "Notes": true}
	base := effective(t, "bootstrap: k:1\n")
	kind := reflect.TypeFor[Effective]()
	for i := range kind.NumField() {
		field := kind.Field(i)
		changed := base
		value := reflect.ValueOf(&changed).Elem().Field(i)
		switch field.Type.Kind() {
		case reflect.String:
			value.SetString("another")
		case reflect.Bool:
			value.SetBool(!value.Bool())
		case reflect.Int:
			value.SetInt(value.Int() + 1)
		case reflect.Slice:
			value.Set(reflect.MakeSlice(field.Type, 7, 7))
		case reflect.Map:
			value.Set(reflect.MakeMap(field.Type))
			value.SetMapIndex(reflect.Zero(field.Type.Key()), reflect.Zero(field.Type.Elem()))
		case reflect.Pointer:
			value.Set(reflect.New(field.Type.Elem()))
		default:
			t.Fatalf("%s: a kind that this test does not know", field.Name)
		}
		if got := len(base.Differences(changed)) > 0; got == apart[field.Name] {
			t.Errorf("%s: difference seen: %v", field.Name, got)
		}
	}
}

func TestRulesHash(t *testing.T) {
	rules := func(text string) string { return effective(t, "bootstrap: k:1\n"+text).RulesHash() }
	same := []string{
		rules("rules: [{topics: a, mode: require}, {topics: b, mode: enforce}]\n"),
		rules("listen: 127.0.0.1:7\nrules: [{topics: a, mode: require, error_code: 1}, {topics: b, mode: enforce}]\ndefault_mode: off\n"),
	}
	if same[0] != same[1] {
		t.Errorf("the same rules: %s and %s", same[0], same[1])
	}
	seen := map[string]string{same[0]: "the first"}
	for _, text := range []string{
		"", "default_mode: observe\n", "rules: [{topics: a, mode: require}]\n",
		"rules: [{topics: b, mode: enforce}, {topics: a, mode: require}]\n",
		"rules: [{topics: a, mode: require}, {topics: b, mode: enforce, replay: content}]\n",
		"rules: [{topics: a, mode: require}, {topics_regexp: b, mode: enforce}]\n",
	} {
		hash := rules(text)
		if other, twice := seen[hash]; twice {
			t.Errorf("%q has the hash of %q", text, other)
		}
		seen[hash] = text
	}
}

// TestTermsAreWhatIsInForce: each setting that belongs to the agreement is in the
// part of its name, and nothing else is.
func TestTermsAreWhatIsInForce(t *testing.T) {
	terms := func(text string) agreement.Agreement {
		t.Helper()
		settings, err := Parse("test", []byte("bootstrap: k:1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return agreement.Of(settings.Terms())
	}
	plain := terms("")
	for text, want := range map[string]agreement.Name{
		"rules: [{topics: a, mode: require}]":              agreement.RulesPart,
		"default_mode: observe":                            agreement.RulesPart,
		"fence_id: 7":                                      agreement.FenceIDPart,
		"view_max_age: 61s":                                agreement.ViewMaxAgePart,
		"answer_max: 61s":                                  agreement.AnswerMaxPart,
		"clock_skew: 11s":                                  agreement.ClockSkewPart,
		"brokers: {kind: kafka}":                           agreement.KindPart,
		"brokers: {assert: {producer_id_expiration: 48h}}": agreement.LimitsPart,
		"brokers: {probe_topic: other}\nadmission_wait: 1s\nlisten: 127.0.0.1:1\nlog: {level: debug}": "",
	} {
		got := agreement.Compare([]agreement.Shown{{Proxy: "plain", Agreement: plain}, {Proxy: "other", Agreement: terms(text)}})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Part != want) {
			t.Errorf("%s: got %+v, want a difference in %q", text, got, want)
		}
	}
	rules, _ := plain.Find(agreement.RulesPart)
	if got := effective(t, "bootstrap: k:1\n").RulesHash(); string(rules.Hash) != got {
		t.Errorf("the hash of rules is %s here and %s there", got, rules.Hash)
	}
}
