package kafkacluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultVersion is the Kafka version that runs when neither Options.Version
// nor the environment variable KAFKA_VERSION names one.
const DefaultVersion = "4.1.1"

// startTimeout bounds the start of one node: several times what is seen when a
// whole cluster starts while other tests keep every processor busy.
const startTimeout = 120 * time.Second

// NodeID is Kafka's node.id. A cluster of n brokers has the ids 1 to n, unless
// Options.IDs says otherwise.
type NodeID int32

// ErrNoSuchNode is returned for an id that the cluster does not have.
var ErrNoSuchNode = errors.New("no such node")

// Options says what to run. The zero value is three brokers of DefaultVersion
// on free ports, in a temporary directory.
type Options struct {
	// Version of Apache Kafka, 3.7 or later; default $KAFKA_VERSION, else
	// DefaultVersion.
	Version string
	// Brokers is how many nodes run; default 3.
	Brokers int
	// IDs are the nodes' own; nil: 1 to Brokers. With them Brokers is how many there
	// are.
	IDs []NodeID
	// Dir holds configurations, output and data. Default: a temporary
	// directory that Stop removes. Another directory is left in place, and a
	// later Start with the same ports finds its data again.
	Dir string
	// FirstPort is the first of 2×Brokers consecutive ports: the brokers' in
	// the order of their ids, then the controllers'. Zero picks free ones. With
	// RelayHost there are Brokers more.
	FirstPort int
	// RelayHost, if not empty, gives each node a second listener, on a port of
	// its own, that it advertises at this host with the same port. Something that
	// takes connections there can stand between clients and brokers without
	// changing what passes. Not together with Security.
	RelayHost string
	// Properties are added to every node's server.properties and win over the
	// launcher's own.
	Properties map[string]string
	// Heap is the maximum Java heap of a node, as for -Xmx; default 768m.
	Heap string
	// QuickStart has nodes start with half of the processor time, and run more slowly
	// once they have run for long: for tests, not for measurements.
	QuickStart bool
	// Security has clients authenticate, and lets them do what ACLs allow. Nil:
	// anybody may do anything.
	Security *Security
	// TLS has clients and brokers speak TLS; nil: plain. Not together with RelayHost.
	TLS *TLS
}

func (o Options) withDefaults() Options {
	o.Version = cmp.Or(o.Version, os.Getenv("KAFKA_VERSION"), DefaultVersion)
	o.Brokers = cmp.Or(len(o.IDs), o.Brokers, 3)
	o.Heap = cmp.Or(o.Heap, "768m")
	return o
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	version string
	dir     string
	tempDir bool
	tools   string // what tools need to be let in; empty: nothing
	java    javaCommand
	heap    string
	quick   bool  // Options.QuickStart
	relayed []int // ports of the second listeners in the order of the nodes; nil: there are none

	mu     sync.Mutex
	layout layout
	nodes  []*node // in the order in which they came
}

// ErrRelayedSecurity is returned for Options with RelayHost and Security or TLS.
var ErrRelayedSecurity = errors.New("a secured cluster has no relayed listener")

// Start brings a cluster up and returns when every broker is started. ctx
// bounds the start only (the first one downloads about 100 MB of jars); the
// caller must call Stop. On failure nothing is left running, and the error
// holds the last lines of the output of the node that failed.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options = options.withDefaults()
	if options.Security != nil {
		if err := options.Security.check(); err != nil {
			return nil, err
		}
	}
	if options.RelayHost != "" && (options.Security != nil || options.TLS != nil) {
		return nil, ErrRelayedSecurity
	}
	java, err := prepareJava(ctx, options.Version)
	if err != nil {
		return nil, err
	}
	c := &Cluster{version: options.Version, java: java, heap: options.Heap, quick: options.QuickStart}
	if err := c.makeDir(options.Dir); err != nil {
		return nil, err
	}
	if err := c.boot(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start Kafka %s: %w", options.Version, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) makeDir(dir string) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "kafkacluster-")
		c.dir, c.tempDir = temp, true
		return err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c.dir = absolute
	return os.MkdirAll(absolute, 0o755)
}

func (c *Cluster) boot(ctx context.Context, options Options) error {
	firstPort := options.FirstPort
	if firstPort == 0 {
		var err error
		if firstPort, err = FreePorts(3 * options.Brokers); err != nil {
			return err
		}
	}
	layout := layout{
		dir: c.dir, brokers: options.Brokers, ids: options.IDs, firstPort: firstPort, relayHost: options.RelayHost,
		security: options.Security, tls: options.TLS, extra: options.Properties,
	}
	if err := layout.write(); err != nil {
		return err
	}
	if options.Security != nil || options.TLS != nil {
		c.tools = layout.tools()
	}
	c.layout = layout
	for _, id := range layout.first() {
		c.nodes = append(c.nodes, c.newNode(id))
		if options.RelayHost != "" {
			c.relayed = append(c.relayed, layout.relayed(id))
		}
	}
	uuid := newClusterUUID()
	return c.each(
		func(n *node) error { return c.format(ctx, layout, n.id, uuid) },
		func(n *node) error { return n.start(ctx) },
	)
}

func (c *Cluster) newNode(id NodeID) *node {
	return &node{
		id:      id,
		output:  filepath.Join(c.dir, fmt.Sprintf("%d.log", id)),
		command: c.java.broker(c.heap, c.quick, c.layout.log4j(), c.layout.properties(id)),
	}
}

// format prepares a node's data directory. One that is formatted already keeps its
// identity.
func (c *Cluster) format(ctx context.Context, layout layout, id NodeID, uuid string) error {
	if _, err := os.Stat(metaFile(layout, id)); err == nil {
		return nil
	}
	_, err := c.Tool(ctx, "kafka.tools.StorageTool", "format", "-t", uuid, "-c", layout.properties(id))
	return err
}

// metaFile is where a node keeps whose it is.
func metaFile(layout layout, id NodeID) string {
	return filepath.Join(layout.data(id), "meta.properties")
}

// each runs the steps one after the other, each on all nodes at once, until one
// fails, and joins the errors.
func (c *Cluster) each(steps ...func(*node) error) error {
	nodes := c.all()
	for _, step := range steps {
		failures := make(chan error, len(nodes)) // one send each, never blocks
		for _, n := range nodes {
			go func() { failures <- step(n) }()
		}
		var failed []error
		for range nodes {
			failed = append(failed, <-failures)
		}
		if err := errors.Join(failed...); err != nil {
			return err
		}
	}
	return nil
}

// all are the nodes there are.
func (c *Cluster) all() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

// Version is the Kafka version that runs.
func (c *Cluster) Version() string { return c.version }

// Dir is where configurations, output and data are.
func (c *Cluster) Dir() string { return c.dir }

// Bootstrap lists the brokers' addresses, separated by commas, as clients take
// them for bootstrap.servers.
func (c *Cluster) Bootstrap() string {
	var addresses []string
	for _, n := range c.all() {
		addresses = append(addresses, c.Address(n.id))
	}
	return strings.Join(addresses, ",")
}

// Address is the host:port of one broker, empty for an unknown id.
func (c *Cluster) Address(id NodeID) string {
	if _, err := c.node(id); err != nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.layout.address(id)
}

// RelayedPorts are the ports of the second listeners in the order of the nodes'
// ids, each the same at the node and at Options.RelayHost. The caller must not
// change it.
func (c *Cluster) RelayedPorts() []int { return c.relayed }

// Kill ends a node by SIGKILL, as a crash would, and returns when it is gone.
func (c *Cluster) Kill(id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	n.kill()
	return nil
}

// Pause freezes a node (SIGSTOP): its connections stay open and nothing moves.
func (c *Cluster) Pause(id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.pause()
}

// Resume lets a paused node go on (SIGCONT).
func (c *Cluster) Resume(id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.resume()
}

// Revive starts a killed node again on its own log and port and returns when it
// is started.
func (c *Cluster) Revive(ctx context.Context, id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.start(ctx)
}

// Tool runs one of Kafka's own command line tools, given by its Java class, for
// example org.apache.kafka.tools.TopicCommand, and returns what it printed. On
// failure the error is a *ToolError.
func (c *Cluster) Tool(ctx context.Context, class string, args ...string) ([]byte, error) {
	argv := c.java.tool(filepath.Join(c.dir, log4jFile), class, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return output, &ToolError{Tool: class, Err: err, Output: lastLines(string(output), linesInError)}
	}
	return output, nil
}

// ToolConfig is the file that tools of a secured cluster take as
// --command-config, to act as the super user; empty where none is needed.
func (c *Cluster) ToolConfig() string { return c.tools }

// Jars is the directory with the jars of this version, kafka-clients among
// them: a class path for Java programs that talk to the cluster.
func (c *Cluster) Jars() string { return c.java.jars }

// Stop kills every node, paused ones included, and removes a temporary Dir. It
// may be called more than once.
func (c *Cluster) Stop() error {
	for _, n := range c.all() {
		n.kill()
	}
	if c.tempDir {
		return os.RemoveAll(c.dir)
	}
	return nil
}

func (c *Cluster) node(id NodeID) (*node, error) {
	for _, n := range c.all() {
		if n.id == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("node %d: %w", id, ErrNoSuchNode)
}
