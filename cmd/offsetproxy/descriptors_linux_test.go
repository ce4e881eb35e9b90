package main

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// descriptors is a limit that leaves a process so many descriptors that are free.
func (p *process) descriptors(t *testing.T, free int) uint64 {
	t.Helper()
	n := uint64(0)
	for ; ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", p.cmd.Process.Pid, n)); err == nil {
			continue
		}
		if free--; free < 0 {
			break
		}
	}
	return n
}

// A process without descriptors serves those who are connected, says what to raise, and
// accepts again when there are some.
func TestServesOnWithoutDescriptors(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	broker.release()
	p := startProcess(t, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0", "--log-format", "json")
	listen := p.awaitServing(t).Listen
	asks := func(c *kafkatest.Client, id int32) {
		t.Helper()
		c.Send(id, kmsg.NewPtrListGroupsRequest())
		if got := c.NextID(); got != id {
			t.Errorf("got an answer to %d, want %d", got, id)
		}
	}
	connected := kafkatest.Dial(t, listen)
	asks(connected, 1)
	var before unix.Rlimit
	limit := func(n uint64, old *unix.Rlimit) {
		t.Helper()
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	// One more client has a descriptor for itself, and none for its way to the broker.
	limit(p.descriptors(t, 1), nil)
	half := kafkatest.Dial(t, listen)
	half.Send(1, kmsg.NewPtrListGroupsRequest())
	_ = half.SetReadDeadline(time.Now().Add(patience))
	if n, err := half.Read(make([]byte, 1)); n > 0 {
		t.Errorf("read %d bytes, %v; want the connection to end", n, err)
	}
	p.await(t, has("upstream cannot be reached", "each client takes two: raise its limit"))
	limit(p.descriptors(t, 0), nil)
	var waiting []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		waiting = append(waiting, conn)
	}
	p.await(t, has("accept failed", "each client takes two: raise its limit"))
	asks(connected, 2)
	limit(before.Cur, nil)
	last := kafkatest.Dial(t, listen)
	asks(last, 1)
	for _, conn := range waiting {
		frame := kafkatest.RequestFrame(7, kmsg.NewPtrListGroupsRequest())
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(frame); err != nil {
			t.Error(err)
		}
		if n, err := conn.Read(make([]byte, 100)); n == 0 {
			t.Errorf("who waited is not served: %v", err)
		}
	}
}
