package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxFrame is Kafka's own bound, socket.request.max.bytes.
const maxFrame = 100 << 20

var (
	errFrameSize = errors.New("a frame has an impossible length")
	errNoRequest = errors.New("an answer belongs to no request")
)

// Where the correlation id is in a frame, without its length: behind api key and
// version in a request, first in an answer.
const (
	requestIDAt = 4
	answerIDAt  = 0
)

// moveFrames reads whole frames and writes all that are there with one call. It
// shows each, without its length, to seen.
func moveFrames(to io.Writer, from io.Reader, seen func(frame []byte) error) error {
	buffer := make([]byte, copyBuffer)
	held := 0 // bytes in buffer
	for {
		n, err := from.Read(buffer[held:])
		held += n
		whole, want, faulty := walkFrames(buffer[:held], seen)
		if faulty != nil {
			return faulty
		}
		if whole > 0 {
			if _, err := to.Write(buffer[:whole]); err != nil {
				return err
			}
			held = copy(buffer, buffer[whole:held])
		}
		if want > len(buffer) {
			buffer = append(make([]byte, 0, want), buffer[:held]...)[:want]
		}
		switch {
		case errors.Is(err, io.EOF) && held == 0:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// walkFrames tells how many bytes are whole frames, and how large the frame
// behind them is, with its length; 0 if its length is not there yet.
func walkFrames(bytes []byte, seen func(frame []byte) error) (whole, next int, err error) {
	for len(bytes)-whole >= 4 {
		size := binary.BigEndian.Uint32(bytes[whole:])
		if size < requestIDAt || size > maxFrame {
			return 0, 0, fmt.Errorf("%w: %d bytes", errFrameSize, size)
		}
		next = 4 + int(size)
		if len(bytes)-whole < next {
			return whole, next, nil
		}
		if err := seen(bytes[whole+4 : whole+next]); err != nil {
			return 0, 0, err
		}
		whole += next
	}
	return whole, 0, nil
}

// pendingIDs are the correlation ids of requests that have no answer yet, in
// order. Its methods may be called concurrently.
type pendingIDs struct {
	mu  sync.Mutex
	ids []uint32
}

// sent notes a request.
func (p *pendingIDs) sent(frame []byte) error {
	if len(frame) < requestIDAt+4 {
		return fmt.Errorf("%w: a request of %d bytes", errFrameSize, len(frame))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids = append(p.ids, binary.BigEndian.Uint32(frame[requestIDAt:]))
	return nil
}

// answered finds the request of an answer. Answers come in the order of the
// requests; those that are passed over had none, as with acks=0.
func (p *pendingIDs) answered(frame []byte) error {
	id := binary.BigEndian.Uint32(frame[answerIDAt:])
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pending := range p.ids {
		if pending == id {
			p.ids = append(p.ids[:0], p.ids[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("%w: correlation id %d", errNoRequest, id)
}
