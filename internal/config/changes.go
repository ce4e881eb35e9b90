package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
)

// RulesHash stands for the rules and the default mode, in the order of the rules:
// proxies that judge alike show the same one, in hexadecimal. It is the hash of
// agreement.RulesPart.
func (e Effective) RulesHash() string { return string(agreement.HashOf(e.rulesText())) }

// rulesText is the rules and the default mode in JSON.
func (e Effective) rulesText() json.RawMessage {
	text, err := json.Marshal(struct {
		Rules   []EffectiveRule
		Default string
	}{e.Rules, e.DefaultMode})
	if err != nil {
		panic(fmt.Sprintf("config: rules cannot be written: %v", err)) // they are strings and numbers
	}
	return text
}

// Terms are what a proxy with these settings must have in common with others.
func (s *Settings) Terms() agreement.Terms {
	e, p := s.Effective(), &s.Proxy
	return agreement.Terms{
		Unsafe: p.Unsafe, FenceID: e.FenceID, Rules: e.rulesText(),
		ViewMaxAge: p.ViewMaxAge, AnswerMax: p.AnswerMax, ClockSkew: p.ClockSkew,
		Asserted: e.Assert, BrokerKind: e.BrokerKind,
	}
}

// Differences names the settings, as in a file, in which other differs: all that
// a running proxy does not take over. Rules, default_mode and notes are left out.
func (e Effective) Differences(other Effective) []string {
	mine, others := e.settings(), other.settings()
	names := map[string]bool{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(mine)), slices.Collect(maps.Keys(others))) {
		if !reflect.DeepEqual(mine[name], others[name]) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// settings are the values by their names in a file.
func (e Effective) settings() map[string]any {
	s := map[string]any{
		"bootstrap": e.Bootstrap, "listen": e.Listen, "advertised_host": e.AdvertisedHost,
		"broker_ports": e.BrokerPorts, "node_ports": fmt.Sprint(e.NodePorts), "fence_id": e.FenceID,
		"brokers.kind": e.BrokerKind, "brokers.probe_topic": e.ProbeTopic,
		"view_max_age": e.ViewMaxAge, "admission_wait": e.AdmissionWait, "answer_max": e.AnswerMax, "clock_skew": e.ClockSkew,
		"log.level": e.LogLevel, "log.format": e.LogFormat, "metrics.listen": e.MetricsListen, "metrics.pprof": e.Pprof,
		"metrics.per_topic": e.MetricTopics > 0, "metrics.max_topics": e.MetricTopics,
	}
	if len(e.Listeners) > 0 {
		s["listeners"] = e.Listeners
	}
	if e.UpstreamTLS != nil {
		s["upstream.tls"] = *e.UpstreamTLS
	}
	if e.SASL != nil {
		s["upstream.sasl"] = *e.SASL
	}
	for name, value := range e.Assert {
		s["brokers.assert."+name] = value
	}
	for name, value := range e.Limits {
		s["limits."+name] = value
	}
	return s
}
