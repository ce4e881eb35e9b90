package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/internal/version"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// statusDocument is what /status.json shows: a proxy.Status, and what the process
// around the proxy knows. docs/status.md describes each field.
type statusDocument struct {
	// Version is the program's.
	Version string `json:"version"`
	// Revision is that of its source, if it is known.
	Revision string `json:"revision,omitempty"`
	// Unsafe: the fence is off, for demonstrations.
	Unsafe bool `json:"unsafe"`
	// Attention is what a person should look at, the worst first.
	Attention []attention `json:"attention"`

	proxy.Status

	// Configuration is what became of the configuration file; missing without one.
	Configuration *configurationStatus `json:"configuration,omitempty"`
	// Agreement is what all proxies of a cluster must show alike; missing in dev.
	Agreement *agreementStatus `json:"agreement,omitempty"`
	// Certificates are those of listeners and towards brokers, by side.
	Certificates []certificateStatus `json:"certificates"`
}

// severity says how much something matters: an error needs somebody now, a warning
// soon, a note explains.
type severity string

const (
	severityError   severity = "error"
	severityWarning severity = "warning"
	severityNote    severity = "note"
)

// attention is something that a person should look at.
type attention struct {
	// Severity is one of error, warning and note.
	Severity severity `json:"severity"`
	// What has happened, and what to do.
	What string `json:"what"`
}

// configurationStatus is what became of the configuration file.
type configurationStatus struct {
	// File is its name.
	File string `json:"file"`
	// RulesSince is when the rules in force were taken over.
	RulesSince time.Time `json:"rules_since"`
	// RulesHash stands for the rules in force.
	RulesHash string `json:"rules_hash"`
	// Taken is how often it was read again and taken over.
	Taken int64 `json:"taken"`
	// Refused is how often it was read again and refused.
	Refused int64 `json:"refused"`
	// RefusedNow: what was read last was refused, and the one before is in force.
	RefusedNow bool `json:"refused_now"`
	// LastRefused is the last one that was refused; nil: none was.
	LastRefused *refusedReload `json:"last_refused,omitempty"`
}

// refusedReload is a configuration that was refused.
type refusedReload struct {
	// At is when.
	At time.Time `json:"at"`
	// Places are lines and settings that are wrong. What is wrong with them is in the
	// log alone, since it may quote the file.
	Places []string `json:"places"`
}

// refusedPlaces bounds refusedReload.Places.
const refusedPlaces = 10

// refusedBy says where a configuration is wrong.
func refusedBy(err error) *refusedReload {
	r := &refusedReload{At: time.Now().UTC(), Places: []string{}}
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		return r
	}
	for _, p := range wrong.Problems[:min(len(wrong.Problems), refusedPlaces)] {
		place := p.Path
		if p.Line > 0 {
			place = strings.TrimSpace(fmt.Sprintf("line %d %s", p.Line, p.Path))
		}
		if place != "" {
			r.Places = append(r.Places, place)
		}
	}
	return r
}

// agreementStatus stands for what all proxies of a cluster must have in common, which
// /agreement.json shows in parts.
type agreementStatus struct {
	// Hash is the same in all proxies that agree.
	Hash string `json:"hash"`
	// Since is when it came into force.
	Since time.Time `json:"since"`
}

// certificateStatus is when TLS of a side ends.
type certificateStatus struct {
	// Side is upstream, or a listener.
	Side string `json:"side"`
	// Expires is when its certificate does, or the authorities that it trusts.
	Expires time.Time `json:"expires"`
}

// statusSource is where the document comes from. What is nil is not there.
type statusSource struct {
	proxy   func() *proxy.Proxy // nil: not started yet
	reloads *reloader
	certs   *certificates
	users   *localUsers
	unsafe  bool
}

// document puts together what is shown of a status; nil: the proxy has not started.
func (s *statusSource) document(status *proxy.Status) *statusDocument {
	build := version.Current()
	d := &statusDocument{Version: build.Number, Revision: build.Revision, Unsafe: s.unsafe, Certificates: []certificateStatus{}}
	if d.Status = notStarted(); status != nil {
		d.Status = *status
	}
	if r := s.reloads; r != nil {
		rules, agreed := r.rules.Load(), r.agreed.shown.Load()
		d.Agreement = &agreementStatus{string(agreed.Hash), agreed.Since}
		if r.file != "" {
			d.Configuration = &configurationStatus{
				File: r.file, RulesSince: rules.since.UTC(), RulesHash: rules.hash, Taken: r.reloads.taken.Load(), Refused: r.reloads.refused.Load(),
				RefusedNow: r.reloads.failed.Load(), LastRefused: r.lastRefused.Load(),
			}
		}
	}
	if s.certs != nil {
		for _, side := range slices.Sorted(maps.Keys(s.certs.stores)) {
			if at := s.certs.stores[side].NotAfter(); !at.IsZero() {
				d.Certificates = append(d.Certificates, certificateStatus{side, at.UTC()})
			}
		}
	}
	d.Attention = s.attention(d)
	return d
}

// notStarted is a status with nothing in it.
func notStarted() proxy.Status {
	none := map[string]int64{}
	return proxy.Status{
		At: time.Now().UTC(), State: "not_ready", Reason: "not started yet", LimitsHit: none, Traffic: proxy.TrafficStatus{Malformed: none},
		Listeners: []proxy.ListenerStatus{}, Brokers: []proxy.BrokerStatus{}, Rules: []proxy.RuleStatus{}, Topics: []proxy.TopicStatus{},
		Partitions: []proxy.PartitionStatus{}, Violations: []proxy.EventStatus{}, Alarms: []proxy.EventStatus{},
		Appends: proxy.AppendStatus{Outcomes: none, Retries: none, Refusals: none, Observed: none, Views: none, AlarmCounts: none},
	}
}

// attention lists what a person should look at.
func (s *statusSource) attention(d *statusDocument) []attention {
	list := []attention{}
	add := func(is bool, severity severity, format string, args ...any) {
		if is {
			list = append(list, attention{severity, fmt.Sprintf(format, args...)})
		}
	}
	a := &d.Appends
	add(d.Unsafe, severityError, "The fence is off (--unsafe): appends are acknowledged at other offsets than promised.")
	add(a.Outcomes["violation"] > 0, severityError, "Batches were appended at another offset than promised: %d since the start. Check that only proxies with the same rules and fence id write these topics.", a.Outcomes["violation"])
	alarms := int64(0)
	for _, n := range a.AlarmCounts {
		alarms += n
	}
	add(alarms > 0, severityError, "A condition of the fence did not hold: %d alarms since the start. Check that only proxies with the same rules and fence id write these topics.", alarms)
	add(d.State == "not_ready", severityError, "Not ready, so clients should not be sent here: %s.", d.Reason)
	add(d.TopicsUnserved > 0, severityError, "Topics under a rule cannot be fenced, so that Produce to them is refused: %d. See Topics for the reasons.", d.TopicsUnserved)
	for _, b := range d.Brokers {
		add(b.State == "failing" && b.InCluster, severityError, "Broker %d at %s cannot be reached: %s.", b.Node, b.Upstream, b.Failure)
		add(b.MarksBy == "refused", severityError, "Nothing can be fenced on broker %d: %s.", b.Node, b.Problem)
		add(b.MarksBy != "refused" && b.Problem != "", severityWarning, "Broker %d cannot be probed for how it marks duplicates, so each success is read back: %s.", b.Node, b.Problem)
		for _, listener := range slices.Sorted(maps.Keys(b.Hidden)) {
			add(true, severityError, "Broker %d is hidden from clients of listener %s: %s.", b.Node, listener, b.Hidden[listener])
		}
	}
	if c := d.Configuration; c != nil && c.RefusedNow {
		add(true, severityError, "%s was refused when it was read again, and the configuration before stays in force: the log says what to mend.", c.File)
	}
	add(s.certs != nil && s.certs.reloads.failed.Load(), severityError, "TLS files that changed were refused, and those before stay in force: the log says what to mend.")
	add(s.users != nil && s.users.reloads.failed.Load(), severityError, "A users file that changed was refused, and the one before stays in force: the log says what to mend.")
	for _, c := range d.Certificates {
		left := c.Expires.Sub(d.At)
		if s.certs == nil {
			continue
		}
		if lacks := s.certs.uncovered(c.Side); len(lacks) > 0 {
			add(true, severityError, "The certificate of %s is not good for %s, which clients are told, so that they are locked out: have it issued for these names too, the files are read again when they change.", c.Side, strings.Join(lacks, " and "))
		}
		add(left <= 0, severityError, "The certificate of %s has expired: renew it, the files are read again when they change.", c.Side)
		add(left > 0 && left < tlsfiles.ExpiresSoon, severityWarning, "The certificate of %s expires in %s: renew it, the files are read again when they change.", c.Side, inWords(left))
	}
	closed := 0
	for _, p := range d.Partitions {
		if p.State == "closed" {
			closed++
		}
	}
	add(closed > 0, severityError, "Partitions take in nothing new: %d of those shown. See Partitions for the reasons.", closed)
	add(a.Unknown > 0, severityWarning, "Nobody has told what became of %d transmissions: the log is being read for them.", a.Unknown)
	add(d.TopicsWeak > 0, severityWarning, "Topics under a rule can lose acknowledged records: %d. See Topics for the reasons.", d.TopicsWeak)
	add(d.BrokersLeftOut > 0, severityNote, "%d more brokers are not shown.", d.BrokersLeftOut)
	add(nearly(d.Connections.Open, int64(d.Connections.Max)), severityWarning, "Nearly all connections are taken: %d of limits.max_connections %d. Raise it, or look who has them.", d.Connections.Open, d.Connections.Max)
	add(nearly(d.Memory.RequestBytes+d.Memory.AnswerBytes, d.Memory.MaxBytes), severityWarning, "The memory for frames is nearly used up: raise limits.max_buffered, or have clients send less at once.")
	add(d.State == "draining", severityNote, "Draining: %s.", d.Reason)
	add(d.RulesSettling, severityNote, "The rules were changed, and requests that earlier ones have judged are not answered yet.")
	rank := []severity{severityError, severityWarning, severityNote}
	slices.SortStableFunc(list, func(a, b attention) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return list[:min(len(list), shownAttention)]
}

// shownAttention bounds what is shown: it is one broken thing mostly that many tell
// of.
const shownAttention = 30

// nearly reports whether nine tenths of a limit are used.
func nearly(used, limit int64) bool { return limit > 0 && used >= limit-limit/10 }
