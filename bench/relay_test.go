package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// request is a frame as a client sends it, with so many bytes of body.
func request(id uint32, body int) []byte {
	frame := make([]byte, 4+8+body)
	binary.BigEndian.PutUint32(frame, uint32(8+body))
	binary.BigEndian.PutUint32(frame[8:], id)
	copy(frame[12:], filler(body))
	return frame
}

func answer(id uint32, body int) []byte {
	frame := make([]byte, 4+4+body)
	binary.BigEndian.PutUint32(frame, uint32(4+body))
	binary.BigEndian.PutUint32(frame[4:], id)
	copy(frame[8:], filler(body))
	return frame
}

// echo is a broker that answers each request with its own body.
func echo(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			answerAll(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func answerAll(conn net.Conn) {
	defer conn.Close()
	for {
		var head [12]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		body := int(binary.BigEndian.Uint32(head[:])) - 8
		if _, err := io.CopyN(io.Discard, conn, int64(body)); err != nil {
			return
		}
		if _, err := conn.Write(answer(binary.BigEndian.Uint32(head[8:]), body)); err != nil {
			return
		}
	}
}

// startRelay serves until the test ends.
func startRelay(t *testing.T, mode relayMode, upstream string, log func(error)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r := relay{mode: mode, upstream: upstream, log: log}
	go func() { done <- r.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return listener.Addr().String()
}

func TestRelaysPassEverything(t *testing.T) {
	for _, mode := range []relayMode{relayFrames, relayCopy, relaySplice} {
		t.Run(string(mode), func(t *testing.T) {
			address := startRelay(t, mode, echo(t), func(err error) { t.Errorf("relay: %v", err) })
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			bodies := []int{0, 100, copyBuffer, 1, 3 * copyBuffer, 7, 0}
			written := make(chan error, 1)
			go func() {
				var err error
				for i, body := range bodies {
					_, e := conn.Write(request(uint32(i), body))
					err = errors.Join(err, e)
				}
				written <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
			}()
			var want []byte
			for i, body := range bodies {
				want = append(want, answer(uint32(i), body)...)
			}
			// The answers to all come although the client sends no more.
			got, err := io.ReadAll(conn)
			if err = errors.Join(err, <-written); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, want %d, or they differ", len(got), len(want))
			}
		})
	}
}

func TestRelayEndsWithABrokerThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	_ = listener.Close()
	said := make(chan error, 1)
	conn, err := net.Dial("tcp", startRelay(t, relayFrames, nobody, func(err error) { said <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a relay without a broker", n)
	}
	if err := <-said; err == nil {
		t.Error("the relay says nothing")
	}
}

// countingWriter tells how often it was written to.
type countingWriter struct {
	bytes.Buffer
	writes int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(p)
}

func TestFramesAreWrittenWholeAndTogether(t *testing.T) {
	all := bytes.Join([][]byte{request(1, 10), request(2, 0), request(3, 20)}, nil)
	for name, from := range map[string]io.Reader{"at once": bytes.NewReader(all), "byte by byte": iotest.OneByteReader(bytes.NewReader(all))} {
		var pending pendingIDs
		var to countingWriter
		if err := moveFrames(&to, from, pending.sent); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(to.Bytes(), all) {
			t.Errorf("%s: other bytes", name)
		}
		want := 1
		if name != "at once" {
			want = 3
		}
		if to.writes != want {
			t.Errorf("%s: %d writes, want %d", name, to.writes, want)
		}
		if got := len(pending.ids); got != 3 {
			t.Errorf("%s: %d pending, want 3", name, got)
		}
	}
}

func TestFramesRefuseWhatIsNone(t *testing.T) {
	ignore := func([]byte) error { return nil }
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"an impossible length": {[]byte{0xff, 0xff, 0xff, 0xff}, errFrameSize},
		"a length too short":   {[]byte{0, 0, 0, 1, 0}, errFrameSize},
		"half a frame":         {request(1, 10)[:9], io.ErrUnexpectedEOF},
		"half a length":        {[]byte{0, 0}, io.ErrUnexpectedEOF},
	} {
		if err := moveFrames(io.Discard, bytes.NewReader(c.bytes), ignore); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	var pending pendingIDs
	if err := pending.sent(make([]byte, 5)); !errors.Is(err, errFrameSize) {
		t.Errorf("a request without an id: got %v", err)
	}
}

func TestAnswersBelongToRequests(t *testing.T) {
	var pending pendingIDs
	for _, id := range []uint32{4, 5, 6} {
		if err := pending.sent(request(id, 0)[4:]); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		id   uint32
		want error
	}{{5, nil}, {4, errNoRequest}, {6, nil}, {6, errNoRequest}} { // 4 had acks=0
		if err := pending.answered(answer(c.id, 0)[4:]); !errors.Is(err, c.want) {
			t.Errorf("answer %d: got %v, want %v", c.id, err, c.want)
		}
	}
}
