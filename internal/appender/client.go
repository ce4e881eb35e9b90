package appender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offset is a position in a partition.
type Offset int64

// NoOffset stands where an offset is not known.
const NoOffset Offset = -1

// Partition is a partition's number within its topic.
type Partition int32

// Versions used; every broker from 2.4 to 4.x speaks them.
const (
	metadataVersion    = 8
	listOffsetsVersion = 5
	produceVersion     = 9
)

// Config is what a Client needs.
type Config struct {
	// Bootstrap lists host:port addresses to learn the leaders from.
	Bootstrap []string
	// ClientID is sent with every request.
	ClientID string
	// DialTimeout bounds one connection attempt; default 5 s.
	DialTimeout time.Duration
	// Dial opens connections; default net.Dialer.
	Dial Dial
}

// Client makes appends over connections of its own. Not for concurrent use.
type Client struct {
	cfg     Config
	conns   map[string]*Conn // by address
	leaders map[topicPartition]string
	closed  bool
}

type topicPartition struct {
	topic     string
	partition Partition
}

// New returns a client that connects when it is used. Close it.
func New(cfg Config) *Client {
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &Client{
		cfg:     cfg,
		conns:   make(map[string]*Conn),
		leaders: make(map[topicPartition]string),
	}
}

// Close closes all connections.
func (c *Client) Close() error {
	c.closed = true
	var errs []error
	for addr := range c.conns {
		errs = append(errs, c.drop(addr))
	}
	return errors.Join(errs...)
}

func (c *Client) drop(addr string) error {
	cn := c.conns[addr]
	if cn == nil {
		return nil
	}
	delete(c.conns, addr)
	return cn.Close()
}

// connect gives the connection to an address, opened if need be.
func (c *Client) connect(ctx context.Context, addr string) (*Conn, error) {
	if c.closed {
		return nil, ErrClosed
	}
	if cn := c.conns[addr]; cn != nil {
		return cn, nil
	}
	dialCtx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	nc, err := c.cfg.Dial(dialCtx, "tcp", addr)
	if err != nil {
		return nil, &ConnectError{Addrs: []string{addr}, Err: err}
	}
	cn := NewConn(nc, c.cfg.ClientID)
	c.conns[addr] = cn
	return cn, nil
}

// exchange sends a request to an address; a failed connection is closed.
func (c *Client) exchange(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	cn, err := c.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	resp, err := cn.exchange(ctx, req)
	if err != nil {
		c.drop(addr)
		return nil, err
	}
	return resp, nil
}

// Leader gives the address of a partition's leader, from memory or from the
// first bootstrap address that answers. Errors: *ConnectError, *NoTopicError,
// *NoLeaderError.
func (c *Client) Leader(ctx context.Context, topic string, partition Partition) (string, error) {
	if addr, ok := c.leaders[topicPartition{topic, partition}]; ok {
		return addr, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(metadataVersion)
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)

	failed := &ConnectError{Bootstrap: true, Err: errors.New("no address is given")}
	for _, addr := range c.cfg.Bootstrap {
		resp, err := c.exchange(ctx, addr, req)
		if err == nil {
			return c.leaderFrom(resp.(*kmsg.MetadataResponse), topic, partition)
		}
		if errors.Is(err, ErrClosed) {
			return "", err
		}
		// The addresses are listed already; keep only what went wrong.
		var one *ConnectError
		if errors.As(err, &one) {
			err = one.Err
		}
		failed.Addrs, failed.Err = append(failed.Addrs, addr), err
	}
	return "", failed
}

func (c *Client) leaderFrom(resp *kmsg.MetadataResponse, topic string, partition Partition) (string, error) {
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		if Code(t.ErrorCode) == codeUnknownTopic {
			return "", &NoTopicError{Topic: topic, Partition: partition}
		}
		if t.ErrorCode != 0 {
			return "", &BrokerError{Code: Code(t.ErrorCode)}
		}
		for _, p := range t.Partitions {
			if Partition(p.Partition) != partition {
				continue
			}
			for _, b := range resp.Brokers {
				if b.NodeID == p.Leader {
					addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
					c.leaders[topicPartition{topic, partition}] = addr
					return addr, nil
				}
			}
			return "", &NoLeaderError{Topic: topic, Partition: partition, Code: Code(p.ErrorCode)}
		}
		return "", &NoTopicError{Topic: topic, Partition: partition, Partitions: len(t.Partitions)}
	}
	return "", fmt.Errorf("%w: metadata without topic %q", ErrMalformed, topic)
}

// Forget drops what is known of a partition's leader, so that the next call
// asks again.
func (c *Client) Forget(topic string, partition Partition) {
	delete(c.leaders, topicPartition{topic, partition})
}

// NextOffset asks the leader for the offset that the next record will get, as
// far as it is committed (ListOffsets latest). Errors: those of Leader,
// *BrokerError, or a failed connection.
func (c *Client) NextOffset(ctx context.Context, topic string, partition Partition) (Offset, error) {
	addr, err := c.Leader(ctx, topic, partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(listOffsetsVersion)
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition = int32(partition)
	rp.CurrentLeaderEpoch = -1
	rp.Timestamp = -1 // latest
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	resp, err := c.exchange(ctx, addr, req)
	if err != nil {
		c.Forget(topic, partition)
		return 0, err
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if t.Topic != topic || Partition(p.Partition) != partition {
				continue
			}
			if p.ErrorCode != 0 {
				c.Forget(topic, partition)
				return 0, &BrokerError{Code: Code(p.ErrorCode)}
			}
			return Offset(p.Offset), nil
		}
	}
	return 0, fmt.Errorf("%w: offsets without topic %q partition %d", ErrMalformed, topic, partition)
}
