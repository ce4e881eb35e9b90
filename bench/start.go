package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

const startTimeout = 30 * time.Second

var errNotServing = errors.New("does not serve")

// brokerProperties have the broker forget soon what a bulk measure has written.
var brokerProperties = map[string]string{
	"log.segment.bytes":               strconv.Itoa(64 << 20),
	"log.segment.delete.delay.ms":     "1000",
	"log.retention.check.interval.ms": "2000",
}

// program is an offsetproxy to be measured.
type program struct {
	name string // before off and require in the names of targets; empty: nothing
	path string
}

// parseProgram understands PATH and NAME=PATH.
func parseProgram(text string) program {
	name, path, named := strings.Cut(text, "=")
	if !named {
		return program{path: text}
	}
	return program{name: name + "-", path: path}
}

// started is what bench has started; stop ends it.
type started struct {
	profiled bool     // proxies are to serve profiles
	serve    []string // further flags of proxies
	targets  []*target
	stops    []func() error // in the order in which things were started
}

func (s *started) stop() error {
	var all []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		all = append(all, s.stops[i]())
	}
	return errors.Join(all...)
}

// memoryDir is where Linux has a file system in memory.
const memoryDir = "/dev/shm"

// dataDir is where the broker's data go if nobody says where: into memory. A
// disk that cannot keep up makes every way wait, for a time that depends on
// what came before.
func dataDir() string {
	if info, err := os.Stat(memoryDir); err == nil && info.IsDir() {
		return memoryDir
	}
	return ""
}

// startBroker starts one with its data below dir. ctx bounds the start.
func (s *started) startBroker(ctx context.Context, dir string) (address string, err error) {
	data, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return "", err
	}
	s.stops = append(s.stops, func() error { return os.RemoveAll(data) })
	cluster, err := kafkacluster.Start(ctx, kafkacluster.Options{Brokers: 1, Properties: brokerProperties, Dir: data})
	if err != nil {
		return "", err
	}
	s.stops = append(s.stops, cluster.Stop)
	return cluster.Bootstrap(), nil
}

// startTargets starts the relays, and for each program a proxy without a rule and
// one that fences topics with the prefix. wanted decides by name what is needed.
// ctx bounds the start.
func (s *started) startTargets(ctx context.Context, broker string, programs []program, prefix string, wanted func(name string) bool, out *output) error {
	s.targets = append(s.targets, &target{name: "direct", address: broker})
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, mode := range []relayMode{relayFrames, relayCopy, relaySplice} {
		if !wanted(string(mode)) {
			continue
		}
		if err := s.startRelay(ctx, self, mode, broker, out.stderr); err != nil {
			return fmt.Errorf("relay %s: %w", mode, err)
		}
	}
	for _, p := range programs {
		path, err := filepath.Abs(p.path)
		if err != nil {
			return err
		}
		for _, rule := range []string{"off", "require"} {
			name := p.name + rule
			if !wanted(name) {
				continue
			}
			t := &target{name: name}
			var args []string
			if rule == "require" {
				t.conditional = true
				args = []string{"--require", prefix + "-fenced*"}
			}
			if err := s.startProxy(ctx, t, path, broker, args, out.stderr); err != nil {
				return fmt.Errorf("%s (%s): %w", name, p.path, err)
			}
			s.targets = append(s.targets, t)
			t.startTwin = func(ctx context.Context) (*target, error) {
				twin := &target{name: name + "-twin", conditional: t.conditional}
				return twin, s.startProxy(ctx, twin, path, broker, args, out.stderr)
			}
		}
	}
	return nil
}

func (s *started) startRelay(ctx context.Context, self string, mode relayMode, broker string, stderr io.Writer) error {
	command := exec.Command(self, "relay", "--mode", string(mode), "--listen", "127.0.0.1:0", "--upstream", broker)
	command.Stderr = stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.spawn(command); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return errors.Join(errNotServing, err)
	}
	address, _ := strings.CutPrefix(strings.TrimSpace(line), relayReady)
	s.targets = append(s.targets, &target{name: string(mode), address: address, pids: []pid{pid(command.Process.Pid)}})
	return nil
}

// startProxy starts an offsetproxy and waits until it serves the broker.
func (s *started) startProxy(ctx context.Context, t *target, path, broker string, args []string, stderr io.Writer) error {
	first, err := kafkacluster.FreePorts(6)
	if err != nil {
		return err
	}
	port := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i)) }
	given := []string{"serve", "--bootstrap", broker, "--listen", port(0), "--log-level", "error",
		"--broker-ports", fmt.Sprintf("%d-%d", first+1, first+1+ladderBrokers)} // their ids begin with 1
	if s.profiled {
		t.admin = port(5)
		given = append(given, "--metrics-listen", t.admin, "--pprof")
	}
	command := exec.Command(path, slices.Concat(given, s.serve, args)...)
	command.Stderr = stderr
	if err := s.spawn(command); err != nil {
		return err
	}
	t.pids = []pid{pid(command.Process.Pid)}
	t.address = port(0)
	t.address, err = brokerAddress(ctx, t)
	return err
}

// spawn starts a process that ends with s, or with this program.
func (s *started) spawn(command *exec.Cmd) error {
	command.SysProcAttr = kafkacluster.DieWithParent()
	if err := command.Start(); err != nil {
		return err
	}
	s.stops = append(s.stops, func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(startTimeout, func() { _ = command.Process.Kill() })
		defer timer.Stop()
		_ = command.Wait() // how it ended is no result of a bench
		return nil
	})
	return nil
}

// brokerAddress waits until a proxy serves and gives its address for the only
// broker, where clients would go; of several brokers, that for bootstrap.
func brokerAddress(ctx context.Context, t *target) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		client, err := t.client()
		if err != nil {
			return "", err
		}
		brokers, err := kadm.NewClient(client).ListBrokers(ctx)
		client.Close()
		if err == nil && t.everywhere && len(brokers) > 0 {
			return t.address, nil
		}
		if err == nil && len(brokers) == 1 {
			return net.JoinHostPort(brokers[0].Host, strconv.Itoa(int(brokers[0].Port))), nil
		}
		last = err
		pause(ctx, 50*time.Millisecond)
	}
	return "", errors.Join(errNotServing, last)
}
