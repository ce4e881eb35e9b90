package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// leakPatience is how long a proxy may take to let go of what clients have left:
	// it waits for brokers to read what was sent.
	leakPatience = 30 * time.Second
	// keptPipes is how many a proxy keeps for long answers, of two descriptors each.
	keptPipes = 16
	// perClient bounds the goroutines that serve a client that is there, perControl
	// those of a control connection.
	perClient, perControl = 3, 2
)

// holding is what a proxy's process has open.
type holding struct {
	clients    int // connections to its listeners whose client is there
	gone       int // those whose client has closed
	upstream   int // connections to brokers, its control connections among them
	listeners  int
	pipes      int // descriptors
	files      int // descriptors of anything else
	goroutines int // 0: not known
}

// leaks tells what a process holds that it should not, from what it held before its
// first client came: each client that is there still has one connection upstream, and
// each broker one of the proxy's own.
func (h holding) leaks(before holding, brokers int) error {
	var wrong []error
	exceeds := func(what string, got, most int) {
		if got > most {
			wrong = append(wrong, fmt.Errorf("%d %s, want %d at most", got, what, most))
		}
	}
	exceeds("connections whose clients have gone", h.gone, 0)
	exceeds("connections to brokers", h.upstream, h.clients+brokers)
	exceeds("listeners", h.listeners, max(before.listeners, 2+brokers))
	exceeds("descriptors of pipes", h.pipes, 2*keptPipes)
	exceeds("other descriptors", h.files, before.files)
	if h.goroutines > 0 && before.goroutines > 0 {
		exceeds("goroutines", h.goroutines, before.goroutines+perClient*h.clients+perControl*max(0, h.upstream-h.clients-before.upstream))
	}
	return errors.Join(wrong...)
}

var errNoDescriptors = errors.New("descriptors of a process are not listed in /proc")

// holds looks at the process.
func (p *proxyProcess) holds() (holding, error) {
	h, err := holdingOf(p.cmd.Process.Pid)
	if err == nil {
		h.goroutines, err = p.goroutines()
	}
	return h, err
}

func holdingOf(pid int) (holding, error) {
	var h holding
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return h, errNoDescriptors
	}
	sockets, err := tcpSockets()
	if err != nil {
		return h, err
	}
	var own []tcpSocket
	listening := map[string]bool{} // ports
	for _, entry := range entries {
		link, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		inode, is := strings.CutPrefix(link, "socket:")
		switch socket, known := sockets.byInode[inode]; {
		case is && known && socket.state == tcpListen:
			h.listeners++
			listening[portOf(socket.local)] = true
		case is && known:
			own = append(own, socket)
		case is:
			own = append(own, tcpSocket{}) // closed by both sides, or not connected yet
		case strings.HasPrefix(link, "pipe:"):
			h.pipes++
		default:
			h.files++
		}
	}
	for _, socket := range own {
		switch {
		case !listening[portOf(socket.local)]:
			h.upstream++
		case sockets.established[[2]string{socket.remote, socket.local}]:
			h.clients++
		default:
			h.gone++
		}
	}
	return h, nil
}

// States of a socket, as in Linux's include/net/tcp_states.h.
const (
	tcpEstablished = "01"
	tcpListen      = "0A"
)

// tcpSocket is a row of /proc/net/tcp. Addresses are as the kernel writes them, those
// of IPv4 always in four bytes.
type tcpSocket struct{ local, remote, state string }

// tcpTable is all of it.
type tcpTable struct {
	byInode     map[string]tcpSocket // by "[inode]"
	established map[[2]string]bool   // by local and remote address
}

// mapped are the first bytes of an IPv4 address that is written as an IPv6 one.
const mapped = "0000000000000000FFFF0000"

func tcpSockets() (tcpTable, error) {
	table := tcpTable{map[string]tcpSocket{}, map[[2]string]bool{}}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return table, errNoDescriptors
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[0] == "sl" {
				continue
			}
			socket := tcpSocket{strings.TrimPrefix(fields[1], mapped), strings.TrimPrefix(fields[2], mapped), fields[3]}
			table.byInode["["+fields[9]+"]"] = socket
			if socket.state == tcpEstablished {
				table.established[[2]string{socket.local, socket.remote}] = true
			}
		}
	}
	return table, nil
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

var (
	adminLine      = regexp.MustCompile(`"?admin"?[=:]"?([0-9.]+:[0-9]+)`)
	goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)
	// scraper leaves no connection behind, which would be one that is held.
	scraper = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
)

// admin is where the process serves /metrics; empty: nowhere.
func (p *proxyProcess) admin() string {
	lines, _ := p.output.lines(0)
	for i := len(lines) - 1; i >= 0; i-- {
		if found := adminLine.FindStringSubmatch(lines[i]); found != nil {
			return found[1]
		}
		if strings.Contains(lines[i], "msg=starting") {
			break // of an earlier process
		}
	}
	return ""
}

// goroutines reads how many there are; 0: the process does not tell.
func (p *proxyProcess) goroutines() (int, error) {
	admin := p.admin()
	if admin == "" {
		return 0, nil
	}
	response, err := scraper.Get("http://" + admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	found := goroutinesLine.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s tells no goroutines", admin)
	}
	return strconv.Atoi(string(found[1]))
}

// checkLeaks fails the test if the process holds on to what its clients have left.
func (p *proxyProcess) checkLeaks(t *testing.T) {
	t.Helper()
	if p.cmd == nil || runtime.GOOS != "linux" {
		return
	}
	var got holding
	ctx, cancel := context.WithTimeout(context.Background(), leakPatience)
	defer cancel()
	for {
		var err error
		if got, err = p.holds(); err == nil {
			err = got.leaks(p.before, max(p.brokers, brokerCount))
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("the proxy at %s holds on to what nobody uses: %v\nnow %+v, before its first client %+v", p.bootstrap, err, got, p.before)
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// TestLeaksAreFound plants one at a time.
func TestLeaksAreFound(t *testing.T) {
	before := holding{listeners: 5, files: 8, goroutines: 20}
	good := func() holding {
		return holding{clients: 2, upstream: 5, listeners: 5, pipes: 4, files: 8, goroutines: 32}
	}
	if err := good().leaks(before, 3); err != nil {
		t.Errorf("no leak: got %v", err)
	}
	for name, plant := range map[string]func(*holding){
		"a client's connection": func(h *holding) { h.gone++ },
		"an upstream one":       func(h *holding) { h.upstream++ },
		"a client's upstream":   func(h *holding) { h.clients-- },
		"a listener":            func(h *holding) { h.listeners++ },
		"pipes":                 func(h *holding) { h.pipes += 2 * keptPipes },
		"a file":                func(h *holding) { h.files++ },
		"a goroutine":           func(h *holding) { h.goroutines++ },
	} {
		h := good()
		plant(&h)
		if err := h.leaks(before, 3); err == nil {
			t.Errorf("%s: found nothing", name)
		}
	}
}

// TestDescriptorsAreTold opens some of each kind.
func TestDescriptorsAreTold(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	before, err := holdingOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var clients, served []net.Conn
	for range 3 {
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		clients, served = append(clients, client), append(served, conn)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	_ = clients[0].Close()
	// So that its end has come.
	if _, err := served[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	got, err := holdingOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The clients' own ends are connections to elsewhere.
	want := before
	want.listeners, want.clients, want.gone, want.upstream, want.pipes = before.listeners+1, before.clients+2, before.gone+1, before.upstream+2, before.pipes+2
	if got.listeners != want.listeners || got.clients != want.clients || got.gone != want.gone || got.upstream != want.upstream || got.pipes != want.pipes {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
