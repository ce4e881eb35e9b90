package kafkacluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// startedMarker is what Kafka logs when a node serves clients.
const startedMarker = "Kafka Server started"

// ErrNotRunning is returned for a signal to a node that was killed.
var ErrNotRunning = errors.New("node is not running")

// ErrRunning is returned for the start of a node that runs.
var ErrRunning = errors.New("node is running already")

// node is one broker and controller. Its methods may be called concurrently.
type node struct {
	id      NodeID
	output  string   // file that gets what Kafka prints, appended over restarts
	command []string // argv

	mu      sync.Mutex
	process *process // nil: not running
}

// process is one life of a node.
type process struct {
	pid  int
	log  *outputLog
	gone chan struct{} // closed by run once the process is reaped
	err  error         // how it ended; read after gone
}

// start runs the node and returns once it serves clients. On failure it is not
// running.
func (n *node) start(ctx context.Context) error {
	p, err := n.launch()
	if err != nil {
		return fmt.Errorf("node %d: %w", n.id, err)
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-p.log.found:
		return nil
	case <-p.gone:
		err = fmt.Errorf("ended (%w)", p.err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		err = fmt.Errorf("not up in %v", startTimeout)
	}
	n.kill()
	return fmt.Errorf("node %d: %w; its last lines:\n%s", n.id, err, p.log.tail())
}

func (n *node) launch() (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		return nil, ErrRunning
	}
	log, err := newOutputLog(n.output, startedMarker)
	if err != nil {
		return nil, err
	}
	p := &process{log: log, gone: make(chan struct{})}
	launched := make(chan error, 1) // one send, by run
	go p.run(n.command, launched)
	if err := <-launched; err != nil {
		return nil, err
	}
	n.process = p
	return p, nil
}

// run starts the process and reaps it. It keeps its thread for the whole life:
// the kernel's parent-death signal is bound to the thread that forked, and Go
// may end any other.
func (p *process) run(argv []string, launched chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.gone)
	defer p.log.close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = DieWithParent()
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		launched <- err
		return
	}
	p.pid = cmd.Process.Pid
	launched <- nil
	p.err = cmd.Wait()
	if p.err == nil {
		p.err = errors.New("exit status 0")
	}
}

// kill returns when the process is gone; a node that does not run is left so.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return
	}
	n.process.signal(syscall.SIGKILL)
	<-n.process.gone
	n.process = nil
}

// running reports whether the node was started, and not ended since.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil
}

// shut asks the node to end, and returns when it is gone; it is killed if that takes
// longer than startTimeout.
func (n *node) shut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return fmt.Errorf("node %d: %w", n.id, ErrNotRunning)
	}
	if err := n.process.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("node %d: %w", n.id, err)
	}
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	var err error
	select {
	case <-n.process.gone:
	case <-limit.C:
		n.process.signal(syscall.SIGKILL)
		<-n.process.gone
		err = fmt.Errorf("node %d did not end in %v, killed; its last lines:\n%s", n.id, startTimeout, n.process.log.tail())
	}
	n.process = nil
	return err
}

func (n *node) pause() error  { return n.signal(syscall.SIGSTOP) }
func (n *node) resume() error { return n.signal(syscall.SIGCONT) }

func (n *node) signal(s os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return fmt.Errorf("node %d: %w", n.id, ErrNotRunning)
	}
	if err := n.process.signal(s); err != nil {
		return fmt.Errorf("node %d: %w", n.id, err)
	}
	return nil
}

// signal reports ErrNotRunning for a process that ended by itself, instead of
// hitting a stranger that got its pid.
func (p *process) signal(s os.Signal) error {
	select {
	case <-p.gone:
		return ErrNotRunning
	default:
	}
	found, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	return found.Signal(s)
}
