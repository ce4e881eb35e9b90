package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Judge makes findings of facts. It asks nobody.
func Judge(f *Facts) *Report {
	j := &judge{Facts: f}
	j.judgeSeeds()
	if f.Cluster != "" || len(f.Brokers) > 0 {
		j.rules = newRuleTable(f)
		j.judgeBrokers()
		j.judgeExpiry()
		j.judgeClock()
		j.judgeRights()
		j.judgeRules()
		j.judgeTopics()
		j.judgeWriters()
		j.judgeProducers()
	} else if f.TopicsFailed.Failed() {
		// A bootstrap address has answered, so nothing else says that all this is missing.
		j.findAnd(TopicsUnseen, Error, "cluster", "Look why the brokers do not tell: nothing else is known of the cluster until they do. With a large cluster, a longer --timeout may do.",
			"it was not looked at, since its brokers and topics cannot be listed: %s", f.TopicsFailed.Text)
	}
	j.judgeAddresses()
	j.judgeFiles()
	j.judgeProcess()
	j.judgeProxies()
	return newReport(f.At, f.Cluster, j.findings)
}

// judge collects findings.
type judge struct {
	*Facts
	rules    *ruleTable
	findings []Finding
}

// find adds a finding whose remedy is the check's.
func (j *judge) find(id ID, s Severity, subject, seen string, args ...any) {
	j.findAnd(id, s, subject, "", seen, args...)
}

// findAnd adds a finding with a remedy of its own; empty: the check's.
func (j *judge) findAnd(id ID, s Severity, subject, do, seen string, args ...any) {
	if do == "" && s != OK {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.ID == id })
		do = strings.ReplaceAll(checks[i].Do, "`", "") // it is in Markdown
	}
	j.findings = append(j.findings, Finding{id, s, subject, fmt.Sprintf(seen, args...), j.filledIn(do, subject)})
}

// anyTopic stands in a remedy for the topic that it is about.
const anyTopic = "--topic NAME"

// filledIn makes the commands of a remedy such that they can be pasted.
func (j *judge) filledIn(do, subject string) string {
	fill := []string{"--bootstrap-server BROKERS", "--bootstrap-server " + strings.Join(j.Settings.Proxy.Bootstrap, ",")}
	if user := j.Settings.Proxy.Credentials.User; user != "" {
		fill = append(fill, "--allow-principal PRINCIPAL", "--allow-principal 'User:"+user+"'")
	}
	if topic, is := strings.CutPrefix(subject, topicSubject); is {
		fill = append(fill, anyTopic, "--topic "+topic)
	}
	return strings.NewReplacer(fill...).Replace(do)
}

// good adds that all is well, unless something was found of a check.
func (j *judge) good(id ID, subject, seen string, args ...any) {
	if !slices.ContainsFunc(j.findings, func(f Finding) bool { return f.ID == id }) {
		j.find(id, OK, subject, seen, args...)
	}
}

// fences reports whether some topic may be fenced.
func (j *judge) fences() bool {
	p := &j.Settings.Proxy
	return p.Default >= proxy.ModeEnforce || slices.ContainsFunc(p.Rules, func(r proxy.Rule) bool { return r.Mode >= proxy.ModeEnforce })
}

// forTopics is how bad something is that topics under the fence suffer from.
func (j *judge) forTopics(s Severity) Severity {
	if j.fences() {
		return s
	}
	return milder(s)
}

// milder is one step less bad, and a note at least.
func milder(s Severity) Severity {
	return severities[max(s.rank()-1, Note.rank())]
}

// ruled is a topic with the mode that it has.
type ruled struct {
	*Topic
	mode proxy.Mode
	// rule is the index of the rule that decides; −1: the default mode.
	rule int
}

// subject names it.
func (t ruled) subject() string { return "topic " + t.Name }

// how is how bad something is for this topic.
func (t ruled) how(s Severity) Severity {
	if t.mode >= proxy.ModeEnforce {
		return s
	}
	return milder(s)
}

// ruleTable has the topics of the cluster by the rules, as a proxy would.
type ruleTable struct {
	// matched and decided count the topics that a rule matches, and those for which it
	// is the first.
	matched, decided []int
	// before is the first rule that decides for a topic which the rule matches too;
	// −1: none.
	before []int
	// topics are those with a mode other than off, without Kafka's own and the probe
	// topic.
	topics []ruled
}

func newRuleTable(f *Facts) *ruleTable {
	p := &f.Settings.Proxy
	t := &ruleTable{matched: make([]int, len(p.Rules)), decided: make([]int, len(p.Rules)), before: make([]int, len(p.Rules))}
	var matchers []func(string) bool
	for i, r := range p.Rules {
		matchers = append(matchers, r.Matcher())
		t.before[i] = -1
	}
	for i := range f.Topics {
		topic := ruled{Topic: &f.Topics[i], mode: p.Default, rule: -1}
		for i, matches := range matchers {
			if !matches(topic.Name) {
				continue
			}
			t.matched[i]++
			switch {
			case topic.rule < 0:
				topic.rule, topic.mode = i, p.Rules[i].Mode
				t.decided[i]++
			case t.before[i] < 0:
				t.before[i] = topic.rule
			}
		}
		if topic.mode != proxy.ModeOff && !topic.Internal && topic.Name != p.ProbeTopic {
			t.topics = append(t.topics, topic)
		}
	}
	return t
}

// seen are the topics under a rule that could be looked at.
func (t *ruleTable) seen() []ruled {
	return slices.DeleteFunc(slices.Clone(t.topics), func(r ruled) bool { return r.Failed.Failed() })
}

// judgeSeeds: whom the proxy asks first.
func (j *judge) judgeSeeds() {
	failed := 0
	for _, s := range j.Seeds {
		if s.Failed.Failed() {
			failed++
		}
	}
	for _, s := range j.Seeds {
		if !s.Failed.Failed() {
			continue
		}
		how := Warning
		if failed == len(j.Seeds) {
			how = Error
		}
		j.find(BootstrapUnreachable, how, "bootstrap "+s.Address, "it does not answer: %s", s.Failed.Text)
	}
	j.good(BootstrapUnreachable, "bootstrap", "%s", counted(len(j.Seeds), "address answers", "addresses answer"))
}

// counted is a number with the word for it.
func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// listed names at most a few of many.
func listed(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// judgeClock holds this machine's clock against others.
func (j *judge) judgeClock() {
	j.clock(j.Clock, Note)
}

// clock judges one reading; a failed one is as bad as unseen says.
func (j *judge) clock(r ClockReading, unseen Severity) {
	subject := "the clock of " + r.Of
	if r.Failed.Failed() {
		j.findAnd(Clock, unseen, subject, "See yourself that NTP runs on the brokers and on the proxies' machines.", "it cannot be seen: %s", r.Failed.Text)
		return
	}
	// What was said is at least so far from all that it could have been.
	ahead, behind := r.Said.Sub(r.After), r.Before.Sub(r.Said)-r.Grain
	apart, word := ahead, "ahead of"
	if behind > ahead {
		apart, word = behind, "behind"
	}
	skew := j.Settings.Proxy.ClockSkew
	switch {
	case apart > skew:
		j.find(Clock, j.forTopics(Error), subject, "it is %s %s this machine's, and clock_skew is %s", apart.Round(time.Millisecond), word, skew)
	case apart > skew/2:
		j.find(Clock, j.forTopics(Warning), subject, "it is %s %s this machine's, more than half of clock_skew (%s)", apart.Round(time.Millisecond), word, skew)
	default:
		j.find(Clock, OK, subject, "as this machine's, to %s (clock_skew is %s)", max(apart, r.After.Sub(r.Before)+r.Grain).Round(time.Millisecond), skew)
	}
}
