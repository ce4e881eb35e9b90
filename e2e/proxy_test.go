package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// proxyProcess is one running offsetproxy.
type proxyProcess struct {
	bootstrap string
	ports     []int32 // all it may advertise
	output    *processOutput
	// brokers is how many it serves; 0: brokerCount. login has a client let in,
	// where brokers ask.
	brokers int
	login   func(*rawConn) error
	env     []string // added to what the tests have
	// launched, which may be nil, is told of each process before it has done anything.
	launched func(pid int)
	before   holding    // once it serves
	cmd      *exec.Cmd  // nil: not running
	ended    chan error // one value, from the goroutine that reaps it
}

// directStarts spreads what stands for proxies in direct mode over the brokers.
var directStarts atomic.Int32

// startProxy runs `offsetproxy serve` before the brokers until the test ends,
// and returns once clients see the whole cluster through it. It then must have
// ended in order: exit status 0, no panic, no data race.
func startProxy(t *testing.T, flags ...string) *proxyProcess {
	t.Helper()
	return startProgram(t, program, flags...)
}

// startProgram is startProxy with another build of the program.
func startProgram(t *testing.T, program string, flags ...string) *proxyProcess {
	t.Helper()
	if direct {
		bootstrap := brokers.addresses()[int(directStarts.Add(1))%brokerCount]
		return &proxyProcess{bootstrap: bootstrap, ports: brokers.ports(), output: &processOutput{}}
	}
	p := newProxyProcess(t)
	if !slices.Contains(flags, "--metrics-listen") {
		flags = append(flags, "--metrics-listen", "127.0.0.1:0")
	}
	p.start(t, program, append([]string{
		"--bootstrap", brokers.bootstrap, "--listen", p.bootstrap,
		"--broker-ports", p.brokerPorts(), "--broker-kind", brokers.kind(),
	}, flags...)...)
	return p
}

// newProxyProcess finds ports for a proxy that is not started yet.
func newProxyProcess(t *testing.T) *proxyProcess {
	t.Helper()
	const brokerPorts = 10
	first, err := kafkacluster.FreePorts(1 + brokerPorts)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxyProcess{
		bootstrap: net.JoinHostPort("127.0.0.1", strconv.Itoa(first)),
		output:    &processOutput{},
	}
	for port := first; port <= first+brokerPorts; port++ {
		p.ports = append(p.ports, int32(port))
	}
	return p
}

// brokerPorts is the range for --broker-ports.
func (p *proxyProcess) brokerPorts() string {
	return fmt.Sprintf("%d-%d", p.ports[1], p.ports[len(p.ports)-1])
}

// allPorts are ports, as numbers.
func (p *proxyProcess) allPorts() []int {
	var all []int
	for _, port := range p.ports {
		all = append(all, int(port))
	}
	return all
}

// start runs `serve` with these flags. After stop it may be called again. When the
// test ends, after whatever it does to its clients, nothing of theirs may be left.
func (p *proxyProcess) start(t *testing.T, program string, flags ...string) {
	t.Helper()
	if err := p.launch(program, flags...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			p.checkLeaks(t)
		}
		p.stop(t)
	})
	waitFor(t, "proxy at "+p.bootstrap, 30*time.Second, p.ready)
	if runtime.GOOS == "linux" {
		var err error
		if p.before, err = p.holds(); err != nil {
			t.Fatal(err)
		}
	}
}

// launch runs `serve` and waits for nothing.
func (p *proxyProcess) launch(program string, flags ...string) error {
	cmd, ended := exec.Command(program, append([]string{"serve"}, flags...)...), make(chan error, 1)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	p.cmd, p.ended = cmd, ended
	if p.launched != nil {
		p.launched(cmd.Process.Pid)
	}
	return nil
}

// ready asks for the cluster through the proxy.
func (p *proxyProcess) ready() error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("ended: %w\n%s", err, p.output.tail(20))
	default:
	}
	conn, err := dialRaw(p.bootstrap)
	if err != nil {
		return err
	}
	defer conn.close()
	if p.login != nil {
		if err := p.login(conn); err != nil {
			return err
		}
	}
	metadata, err := conn.metadata()
	if err != nil {
		return err
	}
	if got, want := len(metadata.Brokers), cmp.Or(p.brokers, brokerCount); got != want {
		return fmt.Errorf("%d of %d brokers", got, want)
	}
	return nil
}

// stop ends the process as an operator does, unless it has ended.
func (p *proxyProcess) stop(t *testing.T) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	defer func() { p.cmd = nil }()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("proxy ended with %v", err)
		}
	case <-limit.C:
		t.Error("proxy did not end within 20 s of SIGTERM")
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // tells where it hangs
		<-p.ended
	}
	for _, fault := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if p.output.contains(fault) {
			t.Errorf("the proxy's output holds %q", fault)
		}
	}
	if t.Failed() {
		t.Logf("last lines of the proxy at %s:\n%s", p.bootstrap, p.output.tail(60))
	}
}

// kill ends the process as a crash does.
func (p *proxyProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	p.cmd = nil
}

// brokerAddresses maps node ids to what this proxy advertises for them.
func (p *proxyProcess) brokerAddresses(t *testing.T) map[int32]string {
	t.Helper()
	conn, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	metadata, err := conn.metadata()
	if err != nil {
		t.Fatal(err)
	}
	return brokerMap(metadata)
}

func brokerMap(metadata *kmsg.MetadataResponse) map[int32]string {
	addresses := make(map[int32]string)
	for _, broker := range metadata.Brokers {
		addresses[broker.NodeID] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	}
	return addresses
}

// memory is what Linux says of a process's resident set.
type memory struct{ now, peak int64 } // bytes

var errNoMemoryFigures = errors.New("no memory figures in /proc")

func (p *proxyProcess) memory() (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return memory{}, errNoMemoryFigures
	}
	figure := func(name string) int64 {
		_, rest, _ := strings.Cut(string(text), name+":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		kib, _ := strconv.ParseInt(fields[0], 10, 64)
		return kib << 10
	}
	return memory{now: figure("VmRSS"), peak: figure("VmHWM")}, nil
}

// processOutput keeps everything a process prints.
type processOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *processOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// lines returns the whole lines from the byte position from, and the position
// after them.
func (o *processOutput) lines(from int) ([]string, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.text.Bytes()[from:]
	end := bytes.LastIndexByte(text, '\n') + 1
	if end == 0 {
		return nil, from
	}
	return strings.Split(string(text[:end-1]), "\n"), from + end
}

func (o *processOutput) contains(part string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text.Bytes(), []byte(part))
}

func (o *processOutput) tail(n int) string {
	lines, _ := o.lines(0)
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
