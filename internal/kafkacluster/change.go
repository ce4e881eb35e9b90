package kafkacluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

var (
	// ErrNodeExists is returned for a node to be added that the cluster has.
	ErrNodeExists = errors.New("node exists")
	// ErrRelayedAdd is returned for a node to be added with Options.RelayHost: ports for
	// second listeners lie beside those of the first nodes alone.
	ErrRelayedAdd = errors.New("a cluster with relayed listeners takes in no further node")
	errNoUUID     = errors.New("no cluster id in the data directory")
)

// Shut has a node end by itself (SIGTERM): it hands its partitions over to others
// first. It returns when the node is gone.
func (c *Cluster) Shut(id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.shut()
}

// Move gives a node that does not run another address, where its next life serves.
func (c *Cluster) Move(id NodeID) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	if n.running() {
		return fmt.Errorf("node %d: %w", id, ErrRunning)
	}
	return c.assignPort(id)
}

// Add starts a broker that is no controller, and returns when it serves. It takes part
// in all else, and stays until Stop.
func (c *Cluster) Add(ctx context.Context, id NodeID) error {
	if _, err := c.node(id); err == nil {
		return fmt.Errorf("node %d: %w", id, ErrNodeExists)
	}
	c.mu.Lock()
	relayed := c.layout.relayHost != ""
	c.mu.Unlock()
	if relayed {
		return fmt.Errorf("node %d: %w", id, ErrRelayedAdd)
	}
	if err := c.assignPort(id); err != nil {
		return err
	}
	c.mu.Lock()
	n, layout := c.newNode(id), c.layout
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	uuid, err := readUUID(metaFile(layout, layout.first()[0]))
	if err != nil {
		return err
	}
	if err := c.format(ctx, layout, id, uuid); err != nil {
		return err
	}
	return n.start(ctx)
}

// assignPort finds a free port for a node, and writes its configuration.
func (c *Cluster) assignPort(id NodeID) error {
	port, err := FreePorts(1)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layout = c.layout.withPort(id, port)
	return c.layout.writeNode(id)
}

// readUUID finds a cluster's id in a node's data.
func readUUID(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if uuid, ok := strings.CutPrefix(strings.TrimSpace(line), "cluster.id="); ok {
			return uuid, nil
		}
	}
	return "", fmt.Errorf("%s: %w", file, errNoUUID)
}
