package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tcpPair gives both ends of a connection.
func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dialled.Close()
		_ = accepted.Close()
	})
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// What is written beyond what the kernel holds waits for the reader, and arrives.
func TestSocketMovesWhatDoesNotFit(t *testing.T) {
	a, b := tcpPair(t)
	sent := make([]byte, 32<<20)
	for i := range sent {
		sent[i] = byte(i >> 8 * i)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		if n, err := fast(a).Write(sent); n != len(sent) || err != nil {
			t.Errorf("wrote %d of %d bytes: %v", n, len(sent), err)
		}
		_ = a.CloseWrite()
	})
	got, err := io.ReadAll(fast(b))
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("read %d bytes, sent %d: %v", len(got), len(sent), err)
	}
}

// What does not fit is left over, and nobody waits.
func TestSocketWritesNow(t *testing.T) {
	a, b := tcpPair(t)
	s, ok := fast(a).(interface{ writeNow([]byte) int })
	if !ok {
		t.Skip("here it is the connection itself")
	}
	sent := make([]byte, 64<<20)
	n := s.writeNow(sent)
	if n == 0 || n == len(sent) {
		t.Fatalf("%d bytes of %d were taken", n, len(sent))
	}
	all := n
	for n > 0 { // the kernel may find room for more
		n = s.writeNow(sent)
		all += n
	}
	if _, err := io.ReadFull(b, make([]byte, all)); err != nil {
		t.Error(err)
	}
	_ = a.Close()
	if n := s.writeNow(sent); n != 0 {
		t.Errorf("%d bytes were taken by a closed connection", n)
	}
}

func TestSocketKeepsDeadlines(t *testing.T) {
	a, _ := tcpPair(t)
	s, buf := fast(a), make([]byte, 10)
	_ = a.SetReadDeadline(longAgo)
	if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past deadline: got %v", err)
	}
	_ = a.SetReadDeadline(time.Time{})
	time.AfterFunc(time.Millisecond, func() { _ = a.SetReadDeadline(longAgo) })
	if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline while it waits: got %v", err)
	}
	sent := make([]byte, 64<<20)
	_ = a.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := s.Write(sent); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(sent) {
		t.Errorf("write to a peer that does not read: %d bytes, %v", n, err)
	}
}

func TestSocketTellsHowItEnds(t *testing.T) {
	buf := make([]byte, 10)
	t.Run("the peer closes", func(t *testing.T) {
		a, b := tcpPair(t)
		_, _ = b.Write([]byte("last"))
		_ = b.CloseWrite()
		if got, err := io.ReadAll(fast(a)); string(got) != "last" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("the peer resets", func(t *testing.T) {
		a, b := tcpPair(t)
		_ = b.SetLinger(0)
		_ = b.Close()
		if _, err := fast(a).Read(buf); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: got %v", err)
		}
		if _, err := fast(a).Write(buf); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: got %v", err)
		}
	})
	t.Run("it is closed here", func(t *testing.T) {
		a, _ := tcpPair(t)
		time.AfterFunc(time.Millisecond, func() { _ = a.Close() })
		if _, err := fast(a).Read(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read while it closes: got %v", err)
		}
		if _, err := fast(a).Write(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write to a closed one: got %v", err)
		}
	})
}

func TestSocketAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := tcpPair(t)
	to, from, buf := fast(a), fast(b), make([]byte, 100)
	if got := testing.AllocsPerRun(1000, func() {
		if _, err := to.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(from, buf); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations for a write and a read", got)
	}
}
