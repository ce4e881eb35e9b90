package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// everybody is the principal that stands for all.
const everybody = "User:*"

// judgeWriters: who may write fenced topics at the brokers.
func (j *judge) judgeWriters() {
	topics := slices.DeleteFunc(slices.Clone(j.rules.topics), func(t ruled) bool {
		return t.mode < proxy.ModeEnforce || t.Failed.Code == codeUnknownTopic
	})
	if len(topics) == 0 {
		return
	}
	const subject = "topics under a rule"
	if !j.ACLsFailed.Failed() && j.authorizes() {
		for _, t := range topics {
			j.judgeDeletersOf(t)
		}
		j.good(TopicDeleters, subject, "no ACL of a topic lets anybody but the proxies delete them or their records")
	}
	if j.Word.ClosedNetwork {
		j.find(TopicWriters, OK, subject, "only the proxies reach the brokers, on your word (--closed-network)")
		return
	}
	switch {
	case j.ACLsFailed.Code == codeSecurityDisabled, !j.ACLsFailed.Failed() && !j.authorizes():
		j.find(TopicWriters, Warning, subject, "the brokers have no authorizer: everybody who reaches them may write, around the proxies too")
		return
	case j.ACLsFailed.Code == codeClusterAuthorization:
		j.findAnd(TopicWriters, Warning, subject, "Grant it DESCRIBE on the cluster for this, or look yourself: kafka-acls.sh --bootstrap-server BROKERS --list --topic NAME. If the network keeps all but the proxies from the brokers, say --closed-network.",
			"who may write them cannot be seen: %s lacks DESCRIBE on the cluster", j.principal())
		return
	case j.ACLsFailed.Failed():
		j.findAnd(TopicWriters, Warning, subject, "Look yourself: kafka-acls.sh --bootstrap-server BROKERS --list --topic NAME. If the network keeps all but the proxies from the brokers, say --closed-network.",
			"who may write them cannot be seen: %s", j.ACLsFailed.Text)
		return
	}
	for _, t := range topics {
		j.judgeWritersOf(t)
	}
	j.judgeSuperUsers()
}

// authorizes reports whether somebody judges who may do what, or that may be: brokers
// show an authorizer, or ACLs, or nothing of their settings.
func (j *judge) authorizes() bool {
	if len(j.ACLs) > 0 || !j.configsTold() {
		return true
	}
	return slices.ContainsFunc(j.answering(), func(b *Broker) bool {
		value, is := b.Configs[settingAuthorizer]
		return is && (value == nil || *value != "")
	})
}

// judgeWritersOf judges one topic by its ACLs.
func (j *judge) judgeWritersOf(t ruled) {
	own := ""
	if c := j.Settings.Proxy.Credentials; c.User != "" {
		own = "User:" + c.User
	}
	forClients := j.Settings.Proxy.Credentials.ForClients
	var known, strangers []string
	clients := false // some of those known are
	for _, w := range whoMay(kmsg.ACLOperationWrite, t.Name, j.ACLs) {
		switch {
		case w.principal == own:
			known = append(known, w.String())
		case slices.Contains(j.Word.Writers, w.principal):
			known, clients = append(known, w.String()), true
		default:
			strangers = append(strangers, w.String())
		}
	}
	switch {
	case len(strangers) > 0 && (forClients || len(j.Word.Writers) > 0):
		j.find(TopicWriters, Error, t.subject(), "%s may write it at the brokers, around the proxies", listed(strangers))
	case len(strangers) > 0:
		j.find(TopicWriters, Warning, t.subject(), "%s may write it at the brokers themselves; which of them come through the proxies is not known", listed(strangers))
	case j.mayBeOpen(t.Name):
		j.findAnd(TopicWriters, Warning, t.subject(), "Give it ACLs, or set allow.everyone.if.no.acl.found=false.", "it has no ACL, and the brokers set allow.everyone.if.no.acl.found, or do not show whether they do: everybody may write then")
	case len(known) == 0:
		j.find(TopicWriters, OK, t.subject(), "no principal but super users may write it")
	case forClients || !clients:
		j.find(TopicWriters, OK, t.subject(), "only %s may write it", listed(known))
	default:
		j.findAnd(TopicWriters, Note, t.subject(), "Keep them from the brokers by the network, or have the proxies log in for clients (for_clients).",
			"only %s may write it, as you say; at the brokers themselves too, if they reach them", listed(known))
	}
}

// judgeDeletersOf judges who may take away what one topic has. It goes by the topic's
// ACLs alone: DELETE on the cluster has the brokers delete topics too, and is for those
// who operate it. Requests to delete pass through proxies, so that a closed network is no
// help, and what proxies may that log in for clients, clients may.
func (j *judge) judgeDeletersOf(t ruled) {
	c := j.Settings.Proxy.Credentials
	var names []string
	for _, w := range whoMay(kmsg.ACLOperationDelete, t.Name, j.ACLs) {
		switch {
		case w.principal != "User:"+c.User:
			names = append(names, w.String())
		case c.ForClients:
			names = append(names, w.String()+", so every client of the proxies,")
		}
	}
	if len(names) > 0 {
		j.find(TopicDeleters, Note, t.subject(), "%s may delete it, or records of it", listed(names))
	}
}

// judgeSuperUsers: those whom no ACL binds.
func (j *judge) judgeSuperUsers() {
	set := slices.ContainsFunc(j.answering(), func(b *Broker) bool { _, is := b.Configs[settingSuperUsers]; return is })
	switch {
	case set:
		j.find(SuperUsers, Note, "brokers", "super.users is set and not shown: they may write everything")
	case !j.configsTold() || len(j.answering()) == 0:
		j.find(SuperUsers, Note, "brokers", "whether there are any cannot be seen: they may write everything")
	default:
		j.find(SuperUsers, OK, "brokers", "super.users is not set")
	}
}

// mayBeOpen reports whether a topic without ACLs may be everybody's: a broker says so, or
// does not show its settings.
func (j *judge) mayBeOpen(topic string) bool {
	if slices.ContainsFunc(j.ACLs, func(a ACL) bool { return a.covers(topic) }) {
		return false
	}
	return !j.configsTold() || slices.ContainsFunc(j.answering(), func(b *Broker) bool {
		value, is := b.Configs[settingAllowEveryone]
		return is && (value == nil || *value != "false")
	})
}

// entitled is who may do something to a topic, and by what.
type entitled struct {
	principal string
	by        []string
}

// String tells it to a person.
func (w entitled) String() string {
	who := w.principal
	if who == everybody {
		who = "everybody (User:*)"
	}
	return fmt.Sprintf("%s (%s)", who, strings.Join(w.by, ", "))
}

// covers reports whether an ACL is about a topic.
func (a ACL) covers(topic string) bool {
	if a.Prefixed {
		return strings.HasPrefix(topic, a.Name)
	}
	return a.Name == topic || a.Name == "*"
}

// about reports whether an ACL is about an operation.
func (a ACL) about(operation kmsg.ACLOperation) bool {
	return a.Operation == operation || a.Operation == kmsg.ACLOperationAll
}

// whoMay are the principals that may do something to a topic, in order. One that is
// denied on all hosts is left out; what is denied on some hosts only is no help.
func whoMay(operation kmsg.ACLOperation, topic string, acls []ACL) []entitled {
	by := map[string][]string{}
	denied := map[string]bool{}
	for _, a := range acls {
		switch {
		case !a.covers(topic) || !a.about(operation):
		case a.Deny && a.Host == "*":
			denied[a.Principal] = true
		case !a.Deny:
			text := "by name"
			if a.Prefixed {
				text = "by prefix " + a.Name
			} else if a.Name == "*" {
				text = "on all topics"
			}
			if a.Host != "*" {
				text += " from " + a.Host
			}
			if !slices.Contains(by[a.Principal], text) {
				by[a.Principal] = append(by[a.Principal], text)
			}
		}
	}
	if denied[everybody] {
		return nil
	}
	var all []entitled
	for principal, ways := range by {
		if !denied[principal] {
			slices.Sort(ways)
			all = append(all, entitled{principal, ways})
		}
	}
	slices.SortFunc(all, func(a, b entitled) int { return strings.Compare(a.principal, b.principal) })
	return all
}
