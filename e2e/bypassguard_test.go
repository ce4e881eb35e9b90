package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// bypassGuard stands before the brokers at the addresses that they advertise, and lets
// nobody through but proxies: a client that was told such an address is found out.
type bypassGuard struct {
	bootstrap string

	mu       sync.Mutex
	admitted map[int]bool // processes
	bypasses []string
	open     map[io.Closer]bool // nil: over
	group    sync.WaitGroup
}

// guardBrokers guards until the test ends, and fails it for who came without a proxy.
// Nothing else may stand at the relayed ports meanwhile.
func guardBrokers(t *testing.T, ports []int) *bypassGuard {
	t.Helper()
	g := &bypassGuard{
		bootstrap: net.JoinHostPort(relayHost, strconv.Itoa(ports[0])),
		admitted:  map[int]bool{}, open: map[io.Closer]bool{},
	}
	t.Cleanup(func() {
		for _, bypass := range g.close() {
			t.Error(bypass)
		}
	})
	for _, port := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(relayHost, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		g.keep(listener)
		g.group.Go(func() { g.accept(listener, port) })
	}
	return g
}

// admit lets a process through.
func (g *bypassGuard) admit(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitted[pid] = true
}

func (g *bypassGuard) close() []string {
	g.mu.Lock()
	for c := range g.open {
		_ = c.Close()
	}
	g.open = nil
	g.mu.Unlock()
	g.group.Wait()
	return g.bypasses
}

// keep has a connection closed with the guard.
func (g *bypassGuard) keep(c io.Closer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		_ = c.Close()
		return
	}
	g.open[c] = true
}

func (g *bypassGuard) drop(c io.Closer) {
	_ = c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, c)
}

func (g *bypassGuard) accept(listener net.Listener, port int) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed
		}
		g.keep(client)
		g.group.Go(func() { g.serve(client, port) })
	}
}

func (g *bypassGuard) serve(client net.Conn, port int) {
	defer g.drop(client)
	if !g.fromProxy(client) {
		return
	}
	broker, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return
	}
	g.keep(broker)
	defer g.drop(broker)
	g.group.Go(func() {
		_, _ = io.Copy(broker, client)
		_ = broker.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(client, broker)
}

// fromProxy finds whose the other end of a connection is. One that is nobody's any more
// is over; who it was does not matter, since nothing passed.
func (g *bypassGuard) fromProxy(client net.Conn) bool {
	var seen string
	for {
		inode, err := peerInode(client)
		if err != nil || inode == "" {
			return false
		}
		if g.owned(inode) {
			return true
		}
		if inode == seen { // and not closed between two looks
			g.mu.Lock()
			defer g.mu.Unlock()
			g.bypasses = append(g.bypasses, fmt.Sprintf("a process that is no proxy connected to a broker, from %v", client.RemoteAddr()))
			return false
		}
		seen = inode
	}
}

// owned reports whether a process that is let through has a socket.
func (g *bypassGuard) owned(inode string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid := range g.admitted {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, name := range names {
			if to, _ := os.Readlink(name); to == "socket:["+inode+"]" {
				return true
			}
		}
	}
	return false
}

// peerInode is that of the socket at the other end, which is on this machine; empty
// once it is closed.
func peerInode(conn net.Conn) (string, error) {
	local, remote := hexAddress(conn.LocalAddr()), hexAddress(conn.RemoteAddr())
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		if err != nil {
			return "", err
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 9 && strings.HasSuffix(fields[1], remote) && strings.HasSuffix(fields[2], local) && fields[9] != "0" {
				_ = file.Close()
				return fields[9], nil
			}
		}
		_ = file.Close()
	}
	return "", nil
}

// hexAddress is an IPv4 address as Linux lists it on machines of little endian; in the
// list of IPv6 sockets a prefix stands before it.
func hexAddress(address net.Addr) string {
	tcp := address.(*net.TCPAddr)
	return fmt.Sprintf("%08X:%04X", binary.LittleEndian.Uint32(tcp.IP.To4()), tcp.Port)
}

// TestBypassGuard lets a process through once it is admitted, and tells of it before.
func TestBypassGuard(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds whose a socket is in /proc")
	}
	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broker.Close() }()
	go func() {
		for {
			conn, err := broker.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "broker")
			_ = conn.Close()
		}
	}()
	g := guardBrokers(t, []int{port})
	ask := func() string {
		conn, err := net.Dial("tcp", g.bootstrap)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		said, _ := io.ReadAll(conn)
		return string(said)
	}
	if got := ask(); got != "" {
		t.Errorf("to who is not admitted: got %q, want nothing", got)
	}
	g.admit(os.Getpid())
	if got, want := ask(), "broker"; got != want {
		t.Errorf("to who is admitted: got %q, want %q", got, want)
	}
	if got := len(g.close()); got != 1 {
		t.Errorf("bypasses: got %d, want 1", got)
	}
	g.bypasses = nil
}
