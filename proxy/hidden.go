package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

const (
	// maxHidden is how many hidden brokers are remembered and named in the log.
	// Whatever brokers say of others, it must not fill memory and log.
	maxHidden = 256
	// hiddenLogInterval is how often the log tells of the same one at most.
	hiddenLogInterval = time.Minute
)

// Names of reasons for which a broker is hidden.
const (
	hiddenNoPort       = "no_port"
	hiddenPortInUse    = "port_in_use"
	hiddenCannotListen = "cannot_listen"
)

var hiddenNames = []string{hiddenNoPort, hiddenPortInUse, hiddenCannotListen}

// hiding is why clients of an entrance are not told of a broker.
type hiding struct {
	reason   string // of hiddenNames
	upstream string // where the broker is
	port     int    // that could not be listened on; 0: it has none
	err      error  // of listening
	logged   ps.Instant
}

// failedHiding is for a port that could not be listened on.
func failedHiding(upstream string, port int, err error) hiding {
	h := hiding{reason: hiddenCannotListen, upstream: upstream, port: port, err: err}
	if errors.Is(err, syscall.EADDRINUSE) {
		h.reason = hiddenPortInUse
	}
	return h
}

// advice says what to do about it.
func (h hiding) advice() string {
	switch h.reason {
	case hiddenNoPort:
		return "widen broker_ports, or give the node a port in node_ports"
	case hiddenPortInUse:
		return "free the port, or choose other broker_ports"
	}
	if of := descriptorAdvice(h.err); of != "" {
		return of
	}
	return "choose other broker_ports"
}

// why tells a person what is wrong and what to do.
func (h hiding) why() string {
	switch h.reason {
	case hiddenNoPort:
		return "its node id has no port: " + h.advice()
	case hiddenPortInUse:
		return fmt.Sprintf("port %d is in use by another program: %s", h.port, h.advice())
	}
	return shortened(fmt.Sprintf("port %d cannot be listened on (%v): %s", h.port, h.err, h.advice()))
}

// hidings are brokers that clients of an entrance are not told of; at most maxHidden.
type hidings map[doorway]hiding

// note remembers why, and reports whether it is time to tell the log.
func (all hidings) note(way doorway, of hiding, now ps.Instant) (tell bool) {
	before, seen := all[way]
	if !seen && len(all) >= maxHidden {
		return false
	}
	of.logged = before.logged
	// What lacks a port lacks it until the configuration changes.
	tell = !seen || before.reason != of.reason || of.reason != hiddenNoPort && now.Sub(before.logged) >= hiddenLogInterval
	if tell {
		of.logged = now
	}
	all[way] = of
	return tell
}

// hiddenNow are those that the cluster named when it was asked last.
func (t *topology) hiddenNow() hidings {
	live := *t.live.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := maps.Clone(t.hidden)
	maps.DeleteFunc(now, func(way doorway, _ hiding) bool {
		_, in := slices.BinarySearch(live, way.node)
		return !in
	})
	return now
}

// readHidden counts hidden brokers by reason: one for each listener where it is.
func readHidden(m *metrics, observe func(int64, metric.MeasurementOption)) {
	counted := map[string]int64{}
	if p := m.proxy.Load(); p != nil {
		for _, of := range p.topology.hiddenNow() {
			counted[of.reason]++
		}
	}
	for _, reason := range hiddenNames {
		observe(counted[reason], metric.WithAttributes(attribute.String("reason", reason)))
	}
}
