package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// inAnswers relays answers to Fetch of these lengths, where splicing fails as it does.
func inAnswers(t *testing.T, splice func(from, to, most, flags int) (int, error), sizes ...int) *rig {
	t.Helper()
	turn := 0
	r := newRig(t, Config{}, func(c *kafkatest.Conn, q kafkatest.Request) bool {
		_, err := c.Write(kafkatest.AnswerFrame(q, noise(sizes[turn])))
		turn++
		return err == nil
	}, nil)
	r.conn.p.pipes.splice = splice
	return r
}

// Where the kernel will not go on in the middle of an answer, the rest of it is read.
func TestSplicingThatIsRefusedWithinAnAnswer(t *testing.T) {
	const size = 8 << 20
	for _, refusal := range []error{unix.EINVAL, unix.ENOSYS, unix.EPERM} {
		t.Run(refusal.Error(), func(t *testing.T) {
			var calls atomic.Int32
			r := inAnswers(t, func(from, to, most, flags int) (int, error) {
				if calls.Add(1) > 6 && flags&unix.SPLICE_F_NONBLOCK != 0 && isSocket(from) {
					return 0, refusal
				}
				return splice(from, to, most, flags)
			}, size, size, 10)
			for id := range int32(3) {
				r.client.Send(id, fetch())
			}
			for id, n := range []int{size, size, 10} {
				r.expectPart(int32(id), noise(n), n)
			}
			if calls.Load() <= 6 {
				t.Errorf("splice was called %d times only, so nothing was refused", calls.Load())
			}
		})
	}
}

func isSocket(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil
}

// A call that moves nothing and says nothing ends the connection, not all time.
func TestSplicingThatMovesNothingEnds(t *testing.T) {
	var calls atomic.Int32
	r := inAnswers(t, func(from, to, most, flags int) (int, error) {
		if calls.Add(1); isSocket(from) {
			return splice(from, to, most, flags)
		}
		return 0, nil
	}, 8<<20)
	r.client.Send(1, fetch())
	r.client.ExpectClosed()
	r.awaitEnd()
	if calls.Load() == 0 {
		t.Error("splice was not called")
	}
}

func TestPipeThatIsNotGivenItsSize(t *testing.T) {
	was := descriptors(t)
	if p := newPipe(1 << 40); p != nil {
		t.Fatal("got a pipe of a TiB")
	}
	if got := descriptors(t); got != was {
		t.Errorf("%d descriptors were left open", got-was)
	}
	p := newPipe(pipeBytes)
	if p == nil {
		t.Skip("this user is not given such pipes")
	}
	p.close()
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// lowWater is from how many bytes on a socket tells of something to read.
func lowWater(t *testing.T, conn *net.TCPConn) (bytes int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if control := raw.Control(func(fd uintptr) {
		bytes, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	}); err != nil || control != nil {
		t.Fatal(err, control)
	}
	return bytes
}

// However an answer comes in pieces, what has come is moved when no more is to come:
// nothing waits for bytes that are of no answer yet.
func TestSplicingNeverWaitsForMoreThanIsToCome(t *testing.T) {
	source, broker := tcpPair(t)
	client, target := tcpPair(t)
	var all pipes
	defer all.close()
	s := newSplicer(&all, target, source)
	for _, pieces := range [][]int{{1}, {wakeBytes}, {wakeBytes - 1, 1}, {wakeBytes, 1}, {1, 1, 1, 3 * wakeBytes, 1, wakeBytes - 1, 1}} {
		total := 0
		for _, n := range pieces {
			total += n
		}
		want := noise(total)
		// They come when there was nothing to read, before or after the wait begins.
		nothing := make(chan struct{}, 1)
		var ends sync.WaitGroup
		ends.Go(func() {
			<-nothing
			rest := want
			for _, n := range pieces {
				if _, err := broker.Write(rest[:n]); err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
		})
		got := make([]byte, total)
		ends.Go(func() {
			if _, err := io.ReadFull(client, got); err != nil {
				t.Error(err)
			}
		})
		s.pipes.splice = func(from, to, most, flags int) (int, error) {
			n, err := splice(from, to, most, flags)
			if errors.Is(err, unix.EAGAIN) && isSocket(from) {
				select {
				case nothing <- struct{}{}:
				default:
				}
			}
			return n, err
		}
		for left := total; left > 0; {
			n, err := s.take(min(left, spliceBytes))
			if err != nil {
				t.Fatal(err)
			}
			left -= n
			if err := s.give(left > 0, func(int) {}); err != nil {
				t.Fatal(err)
			}
		}
		ends.Wait()
		s.rest()
		if low := lowWater(t, source); low != 1 {
			t.Errorf("pieces %v: afterwards %d bytes are waited for, want 1", pieces, low)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("pieces %v: got others", pieces)
		}
	}
}
