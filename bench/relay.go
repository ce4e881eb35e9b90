package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// relayMode is how a bare relay moves bytes.
type relayMode string

const (
	relayFrames relayMode = "frames" // whole frames, answers matched with requests, writes coalesced
	relayCopy   relayMode = "copy"   // a loop with a buffer each way
	relaySplice relayMode = "splice" // io.Copy, which on Linux leaves the bytes in the kernel
)

const copyBuffer = 256 << 10

// relayCmd is a relay as a process of its own.
type relayCmd struct {
	Mode     relayMode `help:"frames: read whole frames, match answers with requests, coalesce writes. copy: a loop with a 256 KiB buffer each way. splice: io.Copy." enum:"frames,copy,splice" default:"frames"`
	Listen   string    `help:"Address for clients." required:"" placeholder:"HOST:PORT"`
	Upstream string    `help:"Address of the broker." required:"" placeholder:"HOST:PORT"`
}

// Run relays until ctx ends.
func (c *relayCmd) Run(ctx context.Context, out *output) error {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, "%s%s\n", relayReady, listener.Addr())
	relay := relay{mode: c.Mode, upstream: c.Upstream, log: func(err error) { fmt.Fprintf(out.stderr, "relay: %v\n", err) }}
	return relay.serve(ctx, listener)
}

// relayReady begins the line that says that a relay listens, and where.
const relayReady = "relays at "

// relay moves bytes between clients and one broker.
type relay struct {
	mode     relayMode
	upstream string
	log      func(error) // of one connection; called by many at once
}

// serve relays until ctx ends, and closes the listener and all connections then.
func (r *relay) serve(ctx context.Context, listener net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		client, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		all.Go(func() {
			if err := r.connection(ctx, client.(*net.TCPConn)); err != nil && ctx.Err() == nil {
				r.log(err)
			}
		})
	}
}

// connection relays one client until both sides have ended.
func (r *relay) connection(ctx context.Context, client *net.TCPConn) error {
	defer client.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", r.upstream)
	if err != nil {
		return err
	}
	broker := conn.(*net.TCPConn)
	defer broker.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = broker.Close()
	})
	defer stop()

	requests, answers := r.movers()
	failed := make(chan error, 2) // one of each direction
	go func() { failed <- oneWay(broker, client, requests) }()
	go func() { failed <- oneWay(client, broker, answers) }()
	first := <-failed
	if first != nil { // the other direction may wait for ever
		_ = client.Close()
		_ = broker.Close()
	}
	second := <-failed
	if errors.Is(first, errGone) {
		return nil // in the midst of something, which is a client's right
	}
	return errors.Join(first, second)
}

// errGone means that one side has left without a farewell.
var errGone = errors.New("a side of the connection is gone")

// mover copies from one side to the other until the end.
type mover func(to, from *net.TCPConn) error

// movers are those of one connection.
func (r *relay) movers() (requests, answers mover) {
	switch r.mode {
	case relayFrames:
		var pending pendingIDs
		return func(to, from *net.TCPConn) error { return moveFrames(to, from, pending.sent) },
			func(to, from *net.TCPConn) error { return moveFrames(to, from, pending.answered) }
	case relayCopy:
		return moveCopy, moveCopy
	default:
		return moveSplice, moveSplice
	}
}

// oneWay moves bytes and then tells the other side that there are no more.
func oneWay(to, from *net.TCPConn, move mover) error {
	err := move(to, from)
	_ = to.CloseWrite()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return errGone
	}
	return err
}

func moveSplice(to, from *net.TCPConn) error {
	_, err := io.Copy(to, from)
	return err
}

// moveCopy hides the connections' own ways to copy.
func moveCopy(to, from *net.TCPConn) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copyBuffer))
	return err
}
