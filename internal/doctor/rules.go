package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/proxy"
)

var (
	codeTopicAuthorization   = kerr.TopicAuthorizationFailed.Code
	codeClusterAuthorization = kerr.ClusterAuthorizationFailed.Code
	codeUnknownTopic         = kerr.UnknownTopicOrPartition.Code
	codeSecurityDisabled     = kerr.SecurityDisabled.Code
)

// topicName is what Kafka takes for one.
var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// literal gives the one name that a rule is for; false: it is a pattern.
func literal(r proxy.Rule) (string, bool) {
	if r.TopicsRegexp != "" {
		return r.TopicsRegexp, regexp.QuoteMeta(r.TopicsRegexp) == r.TopicsRegexp
	}
	return r.Topics, !strings.ContainsAny(r.Topics, `*?[\`)
}

// NamedTopics are the names for which a configuration has a rule of their own.
func NamedTopics(p *proxy.Config) []string {
	var names []string
	for _, r := range p.Rules {
		if name, one := literal(r); one && topicName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// patternOf is a rule's, for a person.
func patternOf(r proxy.Rule) string {
	if r.TopicsRegexp != "" {
		return "/" + r.TopicsRegexp + "/"
	}
	return r.Topics
}

// everything reports whether a rule is for all topics.
func everything(r proxy.Rule) bool { return r.Topics == "*" || r.TopicsRegexp == ".*" }

func (j *judge) judgeRules() {
	if j.TopicsFailed.Failed() {
		j.find(TopicsUnseen, j.forTopics(Warning), "topics", "they cannot be listed: %s", j.TopicsFailed.Text)
		return
	}
	j.find(TopicsUnseen, OK, "topics", "%s, %d of them under a rule", counted(len(j.Topics), "topic is seen", "topics are seen"), len(j.rules.topics))
	p := &j.Settings.Proxy
	for i, r := range p.Rules {
		subject := fmt.Sprintf("rules[%d] (%s)", i, patternOf(r))
		name, one := literal(r)
		switch by := j.shadow(i); {
		case one && !topicName.MatchString(name):
			j.findAnd(RuleNeverUsed, Warning, subject, "Correct the rule.", "no topic can have this name: Kafka takes letters, digits, '.', '_' and '-', at most 249")
		case by >= 0:
			j.find(RuleNeverUsed, Warning, subject, "it never decides: rules[%d] (%s) comes first for all that it matches", by, patternOf(p.Rules[by]))
		case one && r.Mode != proxy.ModeOff && j.isMissing(name):
			how := Warning
			if r.Mode == proxy.ModeObserve {
				how = Note
			}
			j.find(TopicMissing, how, subject, "there is no topic %s", name)
		case !one && j.rules.matched[i] == 0 && r.Mode != proxy.ModeOff:
			j.find(RuleMatchesNothing, Note, subject, "it matches no topic that there is")
		}
	}
	if len(p.Rules) > 0 {
		j.good(RuleNeverUsed, "rules", "each of %s can decide", counted(len(p.Rules), "rule", "rules"))
		j.good(TopicMissing, "rules", "the topics that they name exist")
		j.good(RuleMatchesNothing, "rules", "each pattern matches a topic")
	}
}

// shadow is the rule that leaves nothing for the i-th; −1: it has its share, or
// nothing tells that it has none. Patterns are compared by the topics there are only:
// whether one of them holds all of another is not worked out.
func (j *judge) shadow(i int) int {
	p := &j.Settings.Proxy
	name, one := literal(p.Rules[i])
	for before := range i {
		r := p.Rules[before]
		if everything(r) || one && r.Matcher()(name) {
			return before
		}
	}
	if !one && j.rules.matched[i] > 0 && j.rules.decided[i] == 0 {
		return j.rules.before[i]
	}
	return -1
}

// isMissing reports whether brokers say that there is no such topic.
func (j *judge) isMissing(name string) bool {
	for _, t := range j.Topics {
		if t.Name == name {
			return t.Failed.Code == codeUnknownTopic
		}
	}
	return true
}
