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

// What servers of other protocols answer begins with, read as the length of an answer;
// both are beyond maxAnswerBytes.
const (
	beginsHTTP     = 0x48545450 // "HTTP"
	beginsTLSAlert = 0x1503     // an alert's first two bytes (RFC 8446, section 5.1)
)

// Conn is one connection with one request in flight, which is never sent twice.
// Not for concurrent use. After an error it is useless and must be closed.
type Conn struct {
	net       net.Conn
	formatter *kmsg.RequestFormatter
	lastID    int32
	buf       []byte
}

// NewConn speaks over an open connection, which is the Conn's from then on.
func NewConn(open net.Conn, clientID string) *Conn {
	return &Conn{net: open, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.net.Close() }

// SetDeadline bounds what Send and Receive wait for from now on.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.net.SetDeadline(t); err != nil {
		return c.failed(false, err)
	}
	return nil
}

// Send writes a request in the version that it is set to. Its error is an
// *ExchangeError.
func (c *Conn) Send(req kmsg.Request) error {
	c.lastID++
	c.buf = c.formatter.AppendRequest(c.buf[:0], req, c.lastID)
	if n, err := c.net.Write(c.buf); err != nil {
		return c.failed(n > 0, err)
	}
	return nil
}

// Receive waits for the answer to the request that was sent last. Its error is
// an *ExchangeError.
func (c *Conn) Receive(req kmsg.Request) (kmsg.Response, error) {
	resp, err := c.read(req)
	if err != nil {
		return nil, c.failed(true, err)
	}
	return resp, nil
}

// ExchangeError is a failed exchange.
type ExchangeError struct {
	// Sent tells whether any byte of the request may have reached the other
	// side.
	Sent bool
	// Addr is the other side's address.
	Addr string
	// Err says what went wrong.
	Err error
}

// Error implements error.
func (e *ExchangeError) Error() string {
	return fmt.Sprintf("connection to %s: %v", e.Addr, e.Err)
}

// Unwrap gives what went wrong.
func (e *ExchangeError) Unwrap() error { return e.Err }

// exchange sends one request and waits for its answer until ctx ends.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
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

	if err := c.Send(req); err != nil {
		return nil, contextual(ctx, err)
	}
	resp, err := c.Receive(req)
	if err != nil {
		return nil, contextual(ctx, err)
	}
	return resp, nil
}

func (c *Conn) read(req kmsg.Request) (kmsg.Response, error) {
	var head [8]byte
	// What is too short to be an answer may still be told for what it is: zeros stand
	// where nothing came.
	_, err := io.ReadFull(c.net, head[:])
	size, id := int32(binary.BigEndian.Uint32(head[:])), int32(binary.BigEndian.Uint32(head[4:]))
	switch {
	case size == beginsHTTP:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, ErrHTTP)
	case size>>16 == beginsTLSAlert:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, ErrTLS)
	case err != nil:
		return nil, err
	case size < 4 || size > maxAnswerBytes:
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

func (c *Conn) failed(sent bool, err error) error {
	return &ExchangeError{Sent: sent, Addr: c.net.RemoteAddr().String(), Err: err}
}

// contextual prefers the reason for which ctx ended to the timeout that it
// showed itself as.
func contextual(ctx context.Context, err error) error {
	var timeout net.Error
	var failed *ExchangeError
	if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.As(err, &failed) {
		return err
	}
	failed.Err = context.DeadlineExceeded
	if cause := context.Cause(ctx); cause != nil {
		failed.Err = cause
	}
	return failed
}
