package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// idleConnections is how many do nothing beside the one that works; fewer if this
	// program, or the proxy, may not open so many.
	idleConnections = 9_500
	// idleOpeners open them, so many at once.
	idleOpeners = 32
)

var idleMeasure = measure{
	name:  "idle",
	about: "as one, through a proxy with thousands of idle connections, beside a proxy without; and what memory each takes",
	setUp: setUpIdle,
}

// setUpIdle has a second way for the first target that has a second proxy, which gets
// the idle connections: no broker has descriptors for several times as many.
func setUpIdle(ctx context.Context, r *run) ([]way, error) {
	var ways []way
	add := func(t *target, name string, each float64, beside ...string) error {
		topic := r.topicFor("idle", t)
		if err := r.makeTopic(ctx, topic, 1); err != nil {
			return err
		}
		ways = append(ways, way{name: name, beside: beside, target: t, sample: func(ctx context.Context, _ int) (sample, error) {
			s, err := sampleOne(ctx, r, t, topic)
			if err != nil {
				return nil, err
			}
			s[0], s[1] = s[1], s[0] // p99 first
			if each > 0 {
				s = append(s, figure{"memory", "KiB/connection", lower, each})
			}
			return s, nil
		}})
		return nil
	}
	held := false
	for _, t := range r.targets {
		if err := add(t, t.name, 0); err != nil {
			return nil, err
		}
		if held {
			continue
		}
		twin, err := t.twinOf(ctx)
		if errors.Is(err, errNoTwin) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the second proxy of %s: %w", t.name, err)
		}
		n := r.volume.inForce().idle
		each, err := holdIdle(ctx, twin, n)
		if err != nil {
			return nil, fmt.Errorf("idle connections to %s: %w", twin.name, err)
		}
		held = true
		name := fmt.Sprintf("%s beside %d", t.name, n)
		if err := add(twin, name, each, t.name); err != nil {
			return nil, err
		}
	}
	return ways, nil
}

// holdIdle opens connections, has each ask for something once, and holds them until
// ctx ends. It returns the memory that the target's processes took for each, in KiB.
func holdIdle(ctx context.Context, t *target, n int) (each float64, err error) {
	before, err := peakOf(t)
	if err != nil {
		return 0, err
	}
	conns, failures := make([]net.Conn, n), make([]error, idleOpeners)
	var opening sync.WaitGroup
	for opener := range idleOpeners {
		opening.Go(func() {
			for i := opener; i < n && failures[opener] == nil; i += idleOpeners {
				conns[i], failures[opener] = openIdle(ctx, t)
			}
		})
	}
	opening.Wait()
	context.AfterFunc(ctx, func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
	if err := errors.Join(failures...); err != nil {
		return 0, err
	}
	after, err := peakOf(t)
	return float64(after-before) / 1024 / float64(n), err
}

// peakOf is the most memory that a target's processes have held, in bytes.
func peakOf(t *target) (all int64, err error) {
	for _, p := range t.pids {
		peak, err := p.peak()
		if err != nil {
			return 0, err
		}
		all += peak
	}
	return all, nil
}

// openIdle connects and asks which brokers there are.
func openIdle(ctx context.Context, t *target) (net.Conn, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := askOnce(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func askOnce(conn net.Conn) error {
	request := kmsg.NewPtrMetadataRequest()
	request.Version, request.Topics = 8, []kmsg.MetadataRequestTopic{}
	if err := conn.SetDeadline(time.Now().Add(produceTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 1)); err != nil {
		return err
	}
	_, err := readAnswer(conn, nil)
	return errors.Join(err, conn.SetDeadline(time.Time{}))
}
