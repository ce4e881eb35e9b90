package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const dialTimeout = 5 * time.Second

// target is a way to the broker that clients can be pointed at.
type target struct {
	name        string
	address     string // host:port; every client of the target dials it and no other, unless everywhere
	pids        []pid  // of the processes between client and broker; none: nothing to read
	conditional bool   // topics under run.topicFor's prefix are fenced here
	admin       string // host:port that serves /debug/pprof; empty: nothing does
	// everywhere: there are several brokers, so clients go where they are sent to.
	everywhere bool
	// twin is a second proxy with the same rules; startTwin starts it. Either may
	// be nil: ask twinOf.
	twin      *target
	startTwin func(ctx context.Context) (*target, error)
}

// parseTarget understands NAME=HOST:PORT and the options of main's help.
func parseTarget(text string) (target, error) {
	wrong := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%w: target %q: %s", errUsage, text, fmt.Sprintf(format, args...))
	}
	name, rest, found := strings.Cut(text, "=")
	if !found || name == "" {
		return wrong("it must be NAME=HOST:PORT")
	}
	options := strings.Split(rest, ",")
	t := target{name: name, address: options[0]}
	if _, port, err := net.SplitHostPort(t.address); err != nil || port == "" {
		return wrong("%q is not HOST:PORT", t.address)
	}
	for _, option := range options[1:] {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case option == "conditional":
			t.conditional = true
		case key == "twin":
			t.twin = &target{name: name + "-twin", address: value, conditional: true}
		case key == "pid":
			id, err := strconv.Atoi(value)
			if err != nil || id <= 0 {
				return wrong("%q is no process id", value)
			}
			t.pids = append(t.pids, pid(id))
		case key == "admin":
			if _, _, err := net.SplitHostPort(value); err != nil {
				return wrong("%q is not HOST:PORT", value)
			}
			t.admin = value
		default:
			return wrong("%q is none of pid=N, admin=HOST:PORT, conditional and twin=HOST:PORT", option)
		}
	}
	return t, nil
}

// dial connects to the target, whatever address a client has in mind.
func (t *target) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return conn, nil
}

// client is a Kafka client of the target; the caller closes it.
func (t *target) client(options ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(t.address),
		kgo.ClientID("bench"),
	}, options...)
	if !t.everywhere {
		all = append(all, kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) }))
	}
	client, err := kgo.NewClient(all...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return client, nil
}
