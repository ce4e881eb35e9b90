package appender

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxAnswerBytes bounds an answer; those asked for here name one topic.
const maxAnswerBytes = 64 << 20

// conn is one connection with one request in flight. Not for concurrent use.
type conn struct {
	net       net.Conn
	formatter *kmsg.RequestFormatter
	lastID    int32
	buf       []byte
}

// exchangeError is a failed exchange; sent tells whether any byte of the
// request may have reached the other side.
type exchangeError struct {
	sent bool
	addr string
	err  error
}

func (e *exchangeError) Error() string {
	return fmt.Sprintf("connection to %s: %v", e.addr, e.err)
}

func (e *exchangeError) Unwrap() error { return e.err }

// exchange sends one request and waits for its answer until ctx ends. After an
// error the connection is useless and must be closed.
func (c *conn) exchange(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	deadline, _ := ctx.Deadline()
	if err := c.net.SetDeadline(deadline); err != nil {
		return nil, c.failed(false, err)
	}
	// A cancelled context becomes a deadline in the past. Waiting for it keeps
	// it from hitting the next exchange.
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		c.net.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-expired
		}
	}()

	c.lastID++
	c.buf = c.formatter.AppendRequest(c.buf[:0], req, c.lastID)
	if n, err := c.net.Write(c.buf); err != nil {
		return nil, c.failed(n > 0, contextual(ctx, err))
	}
	resp, err := c.read(req)
	if err != nil {
		return nil, c.failed(true, contextual(ctx, err))
	}
	return resp, nil
}

func (c *conn) read(req kmsg.Request) (kmsg.Response, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.net, head[:]); err != nil {
		return nil, err
	}
	size, id := int32(binary.BigEndian.Uint32(head[:])), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > maxAnswerBytes {
		return nil, fmt.Errorf("%w: an answer of %d bytes", ErrMalformed, size)
	}
	if id != c.lastID {
		return nil, fmt.Errorf("%w: answer to request %d instead of %d", ErrMalformed, id, c.lastID)
	}
	// Grown as bytes arrive, so a length that lies allocates nothing.
	body, err := io.ReadAll(io.LimitReader(c.net, int64(size-4)))
	if err != nil {
		return nil, err
	}
	if len(body) < int(size-4) {
		return nil, io.ErrUnexpectedEOF
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() {
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	return resp, nil
}

// skipTags passes over the tagged fields of a response header (KIP-482).
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: tagged fields", ErrMalformed)
	}
	b = b[n:]
	for ; count > 0; count-- {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: tagged fields", ErrMalformed)
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("%w: tagged fields", ErrMalformed)
		}
		b = b[n+int(size):]
	}
	return b, nil
}

func (c *conn) failed(sent bool, err error) error {
	return &exchangeError{sent: sent, addr: c.net.RemoteAddr().String(), err: err}
}

// contextual prefers the reason for which ctx ended to the timeout that it
// showed itself as.
func contextual(ctx context.Context, err error) error {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return context.DeadlineExceeded
}
