package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// rulesHashBytes is how much of a hash is shown: enough to compare by eye, and
// that no two sets of rules of one cluster share it by chance.
const rulesHashBytes = 6

// RulesHash stands for the rules and the default mode, in the order of the rules:
// proxies that judge alike show the same one, in hexadecimal.
func (e Effective) RulesHash() string {
	text, err := json.Marshal(struct {
		Rules   []EffectiveRule
		Default string
	}{e.Rules, e.DefaultMode})
	if err != nil {
		panic(fmt.Sprintf("config: rules cannot be written: %v", err)) // they are strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:rulesHashBytes])
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
