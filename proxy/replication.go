package proxy

import (
	"fmt"
	"strings"

	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// Names of the configurations that decide what a topic's acknowledged records
// survive.
const (
	configMinInSync      = "min.insync.replicas"
	configUncleanElected = "unclean.leader.election.enable"
)

// weakReplication says, for a person, how acknowledged records of a topic can
// be lost, and with them the promise that none is lost; empty: they cannot, as
// far as the topic's settings tell.
func weakReplication(info prober.TopicInfo, configs map[string]string) string {
	replicas := 0
	for i, p := range info.Partitions {
		if n := len(p.Replicas); i == 0 || n < replicas {
			replicas = n
		}
	}
	var weak []string
	switch least := configs[configMinInSync]; {
	case replicas == 1:
		weak = append(weak, "it has one replica")
	case least == "1":
		weak = append(weak, configMinInSync+"=1, so that one broker alone may acknowledge and then lose what it has not written to disk: set it to 2")
	}
	if configs[configUncleanElected] == "true" {
		weak = append(weak, configUncleanElected+"=true, so that a broker may lead that has not got all that was acknowledged: set it to false")
	}
	return strings.Join(weak, "; ")
}

// warnOfWeakReplication tells the operator once of each topic.
func (f *fencing) warnOfWeakReplication(name string, t fencedTopic) {
	key := fmt.Sprintf("%s %x", name, t.id) // one that is created anew is another
	if f.weak.first(key, t.weak) && t.weak != "" {
		f.logger.Warn("topic is under a rule and can lose acknowledged records, so that an offset may be promised twice",
			"topic", name, "reason", t.weak)
	}
}
