package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Rule is one entry of rules. Exactly one of Topics and TopicsRegexp is given.
type Rule struct {
	// Topics is proxy.Rule.Topics, a glob.
	Topics Value `yaml:"topics"`
	// TopicsRegexp is proxy.Rule.TopicsRegexp.
	TopicsRegexp Value `yaml:"topics_regexp"`
	// Mode is proxy.Rule.Mode: off, observe, enforce or require.
	Mode Value `yaml:"mode"`
	// ErrorCode is proxy.RuleOptions.ErrorCode: 1, 44 or 87.
	ErrorCode Value `yaml:"error_code"`
	// Replay is proxy.RuleOptions.Replay: id, content or off.
	Replay Value `yaml:"replay"`
	// ExpectedOffsetHeader is proxy.RuleOptions.ExpectedOffsetHeader.
	ExpectedOffsetHeader Value `yaml:"expected_offset_header"`
	// ExpectedOffsetEncoding is proxy.RuleOptions.Encoding: decimal or int64.
	ExpectedOffsetEncoding Value `yaml:"expected_offset_encoding"`
	// AppendIDHeader is proxy.RuleOptions.AppendIDHeader.
	AppendIDHeader Value `yaml:"append_id_header"`
	// OldTimestamps is proxy.RuleOptions.AllowOldTimestamps: refuse or allow.
	OldTimestamps Value `yaml:"old_timestamps"`
}

// The words for what proxy counts from 0.
var (
	modeNames     = []string{"off", "observe", "enforce", "require"}
	replayNames   = []string{"id", "content", "off"}
	encodingNames = []string{"decimal", "int64"}
	oldNames      = []string{"refuse", "allow"}
)

// values lists the settings of a rule by their keys, in the order of the
// documentation.
func (d *Rule) values() []struct {
	key   string
	value *Value
} {
	return []struct {
		key   string
		value *Value
	}{
		{"topics", &d.Topics}, {"topics_regexp", &d.TopicsRegexp}, {"mode", &d.Mode},
		{"error_code", &d.ErrorCode}, {"replay", &d.Replay},
		{"expected_offset_header", &d.ExpectedOffsetHeader}, {"expected_offset_encoding", &d.ExpectedOffsetEncoding},
		{"append_id_header", &d.AppendIDHeader}, {"old_timestamps", &d.OldTimestamps},
	}
}

// topicCharacters are those that Kafka allows in names of topics.
const topicCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// reached notes why a rule holds for no topic, as far as that can be seen from the
// patterns. everything is a rule that matches all topics, or −1; matchers are those of
// the rules before, nil for one that is refused.
func (r *resolver) reached(i, everything int, matchers []func(topic string) bool) {
	rules := r.out.Proxy.Rules
	rule := rules[i]
	name := pattern(rule.Topics, rule.TopicsRegexp)
	if everything >= 0 {
		r.note("rules[%d] (%s) is never reached: rules[%d] matches every topic", i, name, everything)
		return
	}
	if rule.Topics == "" || strings.ContainsAny(rule.Topics, `[]\`) {
		return
	}
	if odd := strings.Trim(rule.Topics, topicCharacters+"*?"); odd != "" {
		r.note("rules[%d] (%s) matches no topic: names of topics have letters, digits, '.', '_' and '-' alone", i, name)
		return
	}
	for j, before := range rules[:i] {
		if covers(before, matchers[j], rule.Topics) {
			r.note("rules[%d] (%s) is never reached: rules[%d] (%s) matches all of its topics. Put exceptions first", i, name, j, pattern(before.Topics, before.TopicsRegexp))
			return
		}
	}
}

// covers reports whether a rule, with its matcher, matches every topic that the glob does,
// without a bracket in it; false: perhaps not.
func covers(before proxy.Rule, matches func(topic string) bool, glob string) bool {
	literal, _, _ := strings.Cut(strings.ReplaceAll(glob, "?", "*"), "*")
	if start, ok := strings.CutSuffix(before.Topics, "*"); ok && !strings.ContainsAny(start, `*?[]\`) {
		return strings.HasPrefix(literal, start)
	}
	return literal == glob && matches != nil && matches(glob)
}

// anyValue is the first setting that the rule has.
func (d *Rule) anyValue() Value {
	for _, v := range d.values() {
		if v.value.given {
			return *v.value
		}
	}
	return Value{}
}

// ErrRule is wrapped by the errors of ParseRule.
var ErrRule = errors.New("not a rule")

// ParseRule understands a rule of a mode that is written in one line: the
// pattern and then options, all separated by spaces, as in
// "orders.* error_code=44 replay=content" or "topics_regexp=a|b". What the values
// mean is left to Document.Resolve. Errors wrap ErrRule.
func ParseRule(mode, line string) (Rule, error) {
	rule := Rule{Mode: Text(mode)}
	for i, word := range strings.Fields(line) {
		key, text, assigned := strings.Cut(word, "=")
		if i == 0 && !assigned {
			key, text = "topics", word
		}
		var into *Value
		var known []string
		for _, v := range rule.values() {
			if v.key == "mode" {
				continue
			}
			known = append(known, v.key)
			if v.key == key {
				into = v.value
			}
		}
		switch {
		case into == nil || i > 0 && !assigned:
			return Rule{}, fmt.Errorf("%w: %q is not OPTION=VALUE with one of the options %s", ErrRule, word, strings.Join(known, ", "))
		case into.given:
			return Rule{}, fmt.Errorf("%w: %s is given twice", ErrRule, key)
		}
		*into = Text(text)
	}
	return rule, nil
}

// pattern is a rule's, for people.
func pattern(topics, expression string) string {
	if expression != "" {
		return "/" + expression + "/"
	}
	return topics
}

func (r *resolver) rules() {
	d, p := r.doc, &r.out.Proxy
	seen := map[string]int{}
	everything := -1
	var matchers []func(topic string) bool // made once for all that come after
	for i := range d.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		wrong := len(r.problems)
		rule := r.rule(&d.Rules[i], at)
		var matcher func(topic string) bool
		if len(r.problems) == wrong {
			matcher = rule.Matcher()
		}
		p.Rules = append(p.Rules, rule)
		name := pattern(rule.Topics, rule.TopicsRegexp)
		if j, twice := seen[name]; twice && name != "" {
			r.wrong(first(d.Rules[i].Topics, d.Rules[i].TopicsRegexp), at+".topics", "%q is in rules[%d] already, which decides", name, j)
		} else {
			seen[name] = i
		}
		r.reached(i, everything, matchers)
		matchers = append(matchers, matcher)
		if (rule.Topics == "*" || rule.TopicsRegexp == ".*") && everything < 0 {
			everything = i
		}
		if rule.Options.AllowOldTimestamps && rule.Mode >= proxy.ModeEnforce {
			r.note("rules[%d] (%s) allows old timestamps: the brokers forget the fence with an old batch, and appends can land at other offsets than they expect. Use LogAppendTime to load old events", i, name)
		}
	}
	p.Default = r.mode(d.DefaultMode, "default_mode")
}

// rule understands one rule; what is wrong with it is reported.
func (r *resolver) rule(d *Rule, at string) proxy.Rule {
	rule := proxy.Rule{Topics: d.Topics.text, TopicsRegexp: d.TopicsRegexp.text}
	wrong := len(r.problems)
	if !d.Mode.given {
		r.wrong(d.anyValue(), at+".mode", "missing: %s", oneOf(modeNames))
	}
	rule.Mode = r.mode(d.Mode, at+".mode")
	if v := d.ErrorCode; v.given {
		n, err := strconv.ParseInt(v.text, 10, 16)
		if err != nil || n == 0 {
			r.wrong(v, at+".error_code", "%q is not one of 1 (OFFSET_OUT_OF_RANGE), 44 (POLICY_VIOLATION) and 87 (INVALID_RECORD)", v.text)
		}
		rule.Options.ErrorCode = int16(n)
	}
	rule.Options.Replay = proxy.Replay(r.choice(d.Replay, at+".replay", "a kind of replay", replayNames))
	rule.Options.Encoding = proxy.Encoding(r.choice(d.ExpectedOffsetEncoding, at+".expected_offset_encoding", "an encoding", encodingNames))
	rule.Options.AllowOldTimestamps = r.choice(d.OldTimestamps, at+".old_timestamps", "what can be done with old timestamps", oldNames) == 1
	rule.Options.ExpectedOffsetHeader = r.headerName(d.ExpectedOffsetHeader, at+".expected_offset_header")
	rule.Options.AppendIDHeader = r.headerName(d.AppendIDHeader, at+".append_id_header")
	if len(r.problems) > wrong {
		rule.Options = proxy.RuleOptions{} // the pattern can be judged nevertheless
	}
	var bad *proxy.ConfigError
	if errors.As(rule.Validate(), &bad) {
		key, v := d.blame(bad.Field)
		r.wrong(v, at+"."+key, "%s", bad.Reason)
	}
	return rule
}

// blame gives the setting that a field of proxy.Rule stands for, or, if that is
// not given, one that is.
func (d *Rule) blame(field string) (key string, v Value) {
	switch field {
	case "Topics":
		return "topics", given(d.Topics, d.anyValue())
	case "TopicsRegexp":
		return "topics_regexp", given(d.TopicsRegexp, d.anyValue())
	case "Options.ErrorCode":
		return "error_code", d.ErrorCode
	case "Options.ExpectedOffsetHeader":
		return "expected_offset_header", d.ExpectedOffsetHeader
	case "Options.AppendIDHeader":
		return "append_id_header", given(d.AppendIDHeader, d.ExpectedOffsetHeader)
	}
	return strings.ToLower(field), d.anyValue()
}

// given is the first of two settings that is given.
func given(v, otherwise Value) Value {
	if v.given {
		return v
	}
	return otherwise
}

func (r *resolver) headerName(v Value, at string) string {
	if v.given && v.text == "" {
		r.wrong(v, at, "empty: leave it out for its default")
	}
	return v.text
}

func (r *resolver) mode(v Value, at string) proxy.Mode {
	return proxy.Mode(r.choice(v, at, "a mode", modeNames))
}

// choice gives the place of a word among names; 0, the default, without one.
func (r *resolver) choice(v Value, at, what string, names []string) int {
	if !v.given {
		return 0
	}
	i := slices.Index(names, v.text)
	if i < 0 {
		r.wrong(v, at, "%q is not %s: %s", v.text, what, oneOf(names))
	}
	return max(i, 0)
}

// oneOf lists words: "a, b or c".
func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
