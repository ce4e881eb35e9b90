package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// Versions used; every broker from 2.4 to 4.x speaks them.
const (
	metadataVersion    = 8
	listOffsetsVersion = 5
	produceVersion     = 9
)

// clientID is what writers call themselves.
const clientID = "offsetproxy-verify"

var errNoLeader = errors.New("no leader is known")

// link is a writer's way through one proxy: a connection to each of its addresses that
// is needed. Not for concurrent use.
type link struct {
	proxy     uint16
	bootstrap string
	topic     string
	dial      appender.Dial
	wait      time.Duration // for a connection, and for an answer
	leaders   []string      // address by partition; empty: ask
	conns     map[string]*appender.Conn
}

func newLink(cfg *Config, proxy, partitions int) *link {
	return &link{
		proxy: uint16(proxy), bootstrap: cfg.Proxies[proxy], topic: cfg.Topic, dial: cfg.dial(), wait: 2 * cfg.RequestTimeout,
		leaders: make([]string, partitions), conns: make(map[string]*appender.Conn),
	}
}

func (l *link) close() {
	for addr := range l.conns {
		l.drop(addr)
	}
}

func (l *link) drop(addr string) {
	if c := l.conns[addr]; c != nil {
		delete(l.conns, addr)
		_ = c.Close()
	}
}

// conn gives a connection with a fresh deadline.
func (l *link) conn(ctx context.Context, addr string) (*appender.Conn, error) {
	c := l.conns[addr]
	if c == nil {
		dialing, cancel := context.WithTimeout(ctx, l.wait)
		open, err := l.dial(dialing, "tcp", addr)
		cancel()
		if err != nil {
			return nil, err
		}
		c = appender.NewConn(open, clientID)
		l.conns[addr] = c
	}
	return c, c.SetDeadline(time.Now().Add(l.wait))
}

// exchange asks and drops the connection if that fails.
func (l *link) exchange(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	c, err := l.conn(ctx, addr)
	if err == nil {
		err = c.Send(req)
	}
	var resp kmsg.Response
	if err == nil {
		resp, err = c.Receive(req)
	}
	if err != nil {
		l.drop(addr)
	}
	return resp, err
}

// leader gives the address of a partition's leader.
func (l *link) leader(ctx context.Context, p Partition) (string, error) {
	if addr := l.leaders[p]; addr != "" {
		return addr, nil
	}
	if err := l.learn(ctx); err != nil {
		return "", err
	}
	if l.leaders[p] == "" {
		return "", fmt.Errorf("%w of partition %d", errNoLeader, p)
	}
	return l.leaders[p], nil
}

// learn asks for all leaders.
func (l *link) learn(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(metadataVersion)
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &l.topic
	req.Topics = append(req.Topics, topic)
	answer, err := l.exchange(ctx, l.bootstrap, req)
	if err != nil {
		return err
	}
	metadata := answer.(*kmsg.MetadataResponse)
	addrs := make(map[int32]string, len(metadata.Brokers))
	for _, b := range metadata.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, t := range metadata.Topics {
		for _, p := range t.Partitions {
			if p.Partition >= 0 && int(p.Partition) < len(l.leaders) {
				l.leaders[p.Partition] = addrs[p.Leader]
			}
		}
	}
	return nil
}

// forget has the leader of a partition asked for again.
func (l *link) forget(p Partition) { l.leaders[p] = "" }

// readEnd asks a partition's leader for its end.
func (l *link) readEnd(ctx context.Context, p Partition) (Offset, error) {
	addr, err := l.leader(ctx, p)
	if err != nil {
		return NoOffset, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(listOffsetsVersion)
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = l.topic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch, part.Timestamp = int32(p), -1, -1
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	answer, err := l.exchange(ctx, addr, req)
	if err != nil {
		l.forget(p)
		return NoOffset, err
	}
	for _, t := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, r := range t.Partitions {
			if t.Topic != l.topic || r.Partition != int32(p) {
				continue
			}
			if r.ErrorCode != 0 {
				l.forget(p)
				return NoOffset, &appender.BrokerError{Code: appender.Code(r.ErrorCode)}
			}
			return Offset(r.Offset), nil
		}
	}
	return NoOffset, appender.ErrMalformed
}
