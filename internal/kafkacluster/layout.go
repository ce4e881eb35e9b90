package kafkacluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const log4jFile = "log4j2.properties"

const log4jConfig = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %m (%c{1})%n%throwable
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
`

// layout is where the files of a cluster are and what its nodes' properties
// say.
type layout struct {
	dir       string
	brokers   int
	ids       []NodeID // of the first nodes, which are the controllers; nil: 1 to brokers
	firstPort int
	// ports are those of nodes whose client port is another than the ids say: it was
	// moved, or the node was added.
	ports     map[NodeID]int
	relayHost string    // empty: no second listener
	security  *Security // nil: anybody may do anything
	tls       *TLS      // nil: plain
	extra     map[string]string
}

// first are the nodes that the cluster was started with.
func (l layout) first() []NodeID {
	if l.ids != nil {
		return l.ids
	}
	var ids []NodeID
	for id := NodeID(1); int(id) <= l.brokers; id++ {
		ids = append(ids, id)
	}
	return ids
}

// place is a node's among the first ones; −1: it was added later, and is no controller.
func (l layout) place(id NodeID) int { return slices.Index(l.first(), id) }

func (l layout) address(id NodeID) string {
	if port, ok := l.ports[id]; ok {
		return loopback(port)
	}
	return loopback(l.firstPort + l.place(id))
}

// withPort is l with a node's client port.
func (l layout) withPort(id NodeID, port int) layout {
	ports := map[NodeID]int{id: port}
	for other, at := range l.ports {
		if other != id {
			ports[other] = at
		}
	}
	l.ports = ports
	return l
}

func (l layout) controller(id NodeID) string { return loopback(l.firstPort + l.brokers + l.place(id)) }

// relayed is the port of a node's second listener.
func (l layout) relayed(id NodeID) int { return l.firstPort + 2*l.brokers + l.place(id) }

func (l layout) properties(id NodeID) string {
	return filepath.Join(l.dir, fmt.Sprintf("%d.properties", id))
}

func (l layout) data(id NodeID) string { return filepath.Join(l.dir, fmt.Sprintf("data-%d", id)) }

func (l layout) log4j() string { return filepath.Join(l.dir, log4jFile) }

// tools is the file that Kafka's tools take as --command-config.
func (l layout) tools() string { return filepath.Join(l.dir, "tools.properties") }

// write puts every node's configuration in place, and the tools'.
func (l layout) write() error {
	if err := os.WriteFile(l.log4j(), []byte(log4jConfig), 0o644); err != nil {
		return err
	}
	if l.security != nil || l.tls != nil {
		if err := os.WriteFile(l.tools(), []byte(write(l.toolProperties())), 0o600); err != nil {
			return err
		}
	}
	for _, id := range l.first() {
		if err := l.writeNode(id); err != nil {
			return err
		}
	}
	return nil
}

// writeNode puts one node's configuration in place.
func (l layout) writeNode(id NodeID) error {
	return os.WriteFile(l.properties(id), []byte(l.render(id)), 0o644)
}

// render gives a node's server.properties, sorted.
func (l layout) render(id NodeID) string {
	var voters []string
	for _, voter := range l.first() {
		voters = append(voters, fmt.Sprintf("%d@%s", voter, l.controller(voter)))
	}
	replicas := min(3, l.brokers)
	inSync := max(1, replicas-1)
	properties := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  fmt.Sprint(id),
		"controller.quorum.voters":                 strings.Join(voters, ","),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s", l.address(id), l.controller(id)),
		"listener.security.protocol.map":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":               "PLAINTEXT",
		"log.dirs":                                 l.data(id),
		"default.replication.factor":               fmt.Sprint(replicas),
		"min.insync.replicas":                      fmt.Sprint(inSync),
		"offsets.topic.replication.factor":         fmt.Sprint(replicas),
		"transaction.state.log.replication.factor": fmt.Sprint(replicas),
		"transaction.state.log.min.isr":            fmt.Sprint(inSync),
		// Kafka's 50 partitions each make the first group and the first
		// transaction slow on a small machine.
		"offsets.topic.num.partitions":         "3",
		"transaction.state.log.num.partitions": "3",
		"auto.create.topics.enable":            "false",
		"group.initial.rebalance.delay.ms":     "0",
	}
	if l.security != nil {
		maps.Copy(properties, l.security.properties(l.address(id), l.controller(id)))
	}
	if l.relayHost != "" {
		maps.Copy(properties, l.relayProperties(id))
	}
	if l.tls != nil {
		maps.Copy(properties, l.tls.properties())
		for _, name := range []string{"listeners", "listener.security.protocol.map", "inter.broker.listener.name"} {
			properties[name] = l.tls.listener(properties[name])
		}
	}
	if l.place(id) < 0 {
		properties["process.roles"] = "broker"
		properties["listeners"], _, _ = strings.Cut(properties["listeners"], ",CONTROLLER:")
	}
	maps.Copy(properties, l.extra)
	return write(properties)
}

// toolProperties are those of a Java client that is let in as the super user.
func (l layout) toolProperties() map[string]string {
	properties := map[string]string{"security.protocol": l.tls.secured("PLAINTEXT")}
	if l.security != nil {
		properties = l.security.Super.clientProperties()
		properties["security.protocol"] = l.tls.secured("SASL_PLAINTEXT")
	}
	if l.tls != nil {
		maps.Copy(properties, l.tls.stores())
	}
	return properties
}

// write gives the text of a file of properties, sorted.
func write(properties map[string]string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	return text.String()
}

// relayProperties are what a node has besides, or instead, for its second listener.
func (l layout) relayProperties(id NodeID) map[string]string {
	port := l.relayed(id)
	return map[string]string{
		"listeners": fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s,RELAYED://%s", l.address(id), l.controller(id), loopback(port)),
		"advertised.listeners": fmt.Sprintf("PLAINTEXT://%s,RELAYED://%s", l.address(id),
			net.JoinHostPort(l.relayHost, strconv.Itoa(port))),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAYED:PLAINTEXT",
	}
}

// newClusterUUID gives a random cluster id in Kafka's form, so that two
// clusters that get each other's ports refuse to talk. Kafka's tools take a
// leading dash for an option, so there is none.
func newClusterUUID() string {
	var id [16]byte
	rand.Read(id[:])
	return "o" + base64.RawURLEncoding.EncodeToString(id[:])[1:]
}
