package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
)

// judgeProxies compares what running proxies show.
func (j *judge) judgeProxies() {
	if len(j.Proxies) == 0 {
		j.find(ProxyUnreachable, Note, "proxies", "whether they agree was not looked at: no --proxies are given")
		return
	}
	var shown []agreement.Shown
	for _, p := range j.Proxies {
		if p.Failed.Failed() {
			j.findAnd(ProxyUnreachable, Error, "proxy "+p.URL, "Look whether it runs, and whether metrics.listen is this address. A proxy that cannot be asked may run by other rules.", "it does not show what it runs by: %s", p.Failed.Text)
			continue
		}
		shown = append(shown, agreement.Shown{Proxy: p.URL, Agreement: p.Agreement})
		if p.NotReady != "" {
			j.find(ProxyNotReady, Warning, "proxy "+p.URL, "%s", p.NotReady)
		}
		for _, hidden := range p.Hidden {
			j.findAnd(BrokerHidden, Error, "proxy "+p.URL, "Do what it says: clients find no leader for the broker's partitions. The proxy tries again by itself.", "%s", hidden)
		}
		if !p.Clock.Failed.Failed() {
			j.clock(p.Clock, Note)
		}
	}
	j.good(ProxyUnreachable, "proxies", "%s", counted(len(j.Proxies), "proxy shows what it runs by", "proxies show what they run by"))
	if len(shown) == 0 {
		return
	}
	j.good(ProxyNotReady, "proxies", "all are ready")
	for _, d := range agreement.Compare(shown) {
		j.differ(d)
	}
	if len(shown) > 1 {
		j.good(ProxiesDiffer, "proxies", "%d proxies have the agreement %s", len(shown), shown[0].Agreement.Hash)
	} else {
		j.good(ProxiesDiffer, "proxies", "one was asked: its agreement is %s. Give all proxies of the cluster to --proxies", shown[0].Agreement.Hash)
	}
	j.behind(shown)
}

// differ tells of a part in which proxies differ.
func (j *judge) differ(d agreement.Difference) {
	how := Error
	if d.Part == agreement.KindPart {
		how = Warning // one is told what the other has found out; a contradiction is seen by each
	}
	if !slices.Contains(agreement.Names(), d.Part) {
		how = Warning // only other versions know what it is
	}
	var sides []string
	for _, s := range d.Sides {
		sides = append(sides, fmt.Sprintf("%s: %s", strings.Join(s.Proxies, ", "), valueOf(s.Part, d)))
	}
	j.find(ProxiesDiffer, how, string(d.Part), "%s", strings.Join(sides, "; "))
}

// behind tells which proxies do not run by this configuration.
func (j *judge) behind(shown []agreement.Shown) {
	mine := agreement.Of(j.Settings.Terms())
	for _, s := range shown {
		var parts []string
		for _, d := range agreement.Compare([]agreement.Shown{{Proxy: "this configuration", Agreement: mine}, s}) {
			parts = append(parts, string(d.Part))
		}
		if len(parts) > 0 {
			j.find(ProxyBehind, Warning, "proxy "+s.Proxy, "it does not run by this configuration: it differs in %s", strings.Join(parts, ", "))
		}
	}
	j.good(ProxyBehind, "proxies", "all run by this configuration")
}

// longestValue is how much of a value is shown.
const longestValue = 200

// valueOf tells a value of a part; of rules only what the sides have not in common.
func valueOf(p agreement.Part, d agreement.Difference) string {
	if p.Hash == "" {
		return "not shown"
	}
	text := string(p.Value)
	if p.Name == agreement.RulesPart {
		if only := onlyRules(p, d); only != "" {
			text = only
		}
	}
	if len(text) > longestValue {
		text = strings.ToValidUTF8(text[:longestValue], "") + "…"
	}
	return fmt.Sprintf("%s (%s)", text, p.Hash)
}

// ruleSet is the form of the part of rules.
type ruleSet struct {
	Rules   []json.RawMessage
	Default string
}

// onlyRules are the rules that one side has and some other lacks; empty: they differ
// otherwise, in their order for example.
func onlyRules(p agreement.Part, d agreement.Difference) string {
	read := func(value json.RawMessage) (set ruleSet) {
		_ = json.Unmarshal(value, &set) // what has another form differs in all
		return set
	}
	mine := read(p.Value)
	var only []string
	for i, r := range mine.Rules {
		inAll := true
		for _, s := range d.Sides {
			inAll = inAll && slices.ContainsFunc(read(s.Part.Value).Rules, func(other json.RawMessage) bool { return string(other) == string(r) })
		}
		if !inAll {
			text := briefly(r)
			for _, s := range d.Sides {
				if slices.ContainsFunc(read(s.Part.Value).Rules, func(other json.RawMessage) bool { return briefly(other) == text && string(other) != string(r) }) {
					text = string(r) // they differ in its options
					break
				}
			}
			only = append(only, fmt.Sprintf("rules[%d] %s", i, text))
		}
	}
	for _, s := range d.Sides {
		if read(s.Part.Value).Default != mine.Default {
			only = append(only, "default_mode "+mine.Default)
			break
		}
	}
	if len(mine.Rules) == 0 {
		only = append([]string{"no rules"}, only...)
	}
	if len(only) == 0 {
		return fmt.Sprintf("%d rules, in another order or fewer", len(mine.Rules))
	}
	return strings.Join(only, ", ")
}

// briefly is a rule's pattern and mode.
func briefly(rule json.RawMessage) string {
	var r struct {
		Topics string `json:"topics"`
		Regexp string `json:"topics_regexp"`
		Mode   string `json:"mode"`
	}
	if json.Unmarshal(rule, &r) != nil || r.Mode == "" {
		return string(rule)
	}
	if r.Regexp != "" {
		r.Topics = "/" + r.Regexp + "/"
	}
	return r.Topics + " " + r.Mode
}
