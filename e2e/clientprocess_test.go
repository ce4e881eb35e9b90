package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// newestJava is the Java client that the refusals are tested with, whatever the
// brokers are.
const newestJava = "4.4.0"

// clientTimeout bounds the wait for one report. It is longer than what the
// programs of clients let their libraries try for.
const clientTimeout = 90 * time.Second

// clientCommand is one line to a program of e2e/clients. Each is answered by one
// report with its tag, in any order.
//
//	open     a producer, by this name, with the settings
//	send     one record; reported when the library tells its fate
//	begin, commit, abort    a transaction of the producer
//	next     ask for the partition's next offset, as a user of the library does
//	close    the producer, and what it has not sent is lost
type clientCommand struct {
	Do       string `json:"do"`
	Tag      string `json:"tag"`
	Producer string `json:"producer"`

	Bootstrap string `json:"bootstrap"` // for open and next
	producerSettings
	// Properties are more of the library's own, for open; the Java client and
	// librdkafka take them.
	Properties map[string]string `json:"properties,omitempty"`

	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	Value     string         `json:"value"`
	Headers   []clientHeader `json:"headers"`
	Timestamp int64          `json:"timestamp,omitempty"` // ms; 0: now
}

// producerSettings are those that the tests vary; what they do not name is the
// library's default.
type producerSettings struct {
	Idempotent      bool   `json:"idempotent"`
	Acks            string `json:"acks"`
	Gapless         bool   `json:"gapless"`     // librdkafka's enable.gapless.guarantee
	BatchBytes      int32  `json:"batch_bytes"` // 0: the library's default
	TransactionalID string `json:"transactional_id"`
	Retries         int    `json:"retries"` // sarama's, which has few; 0: the library's default
}

type clientHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// clientReport is what a library told its user.
type clientReport struct {
	Tag    string       `json:"tag"`
	Offset int64        `json:"offset"`
	Error  *clientError `json:"error"`
}

// clientError is an error as a library shows it.
type clientError struct {
	Kind    string `json:"kind"` // what a program tells errors apart by
	Code    int16  `json:"code"` // the broker's, 0 if it is of the library's own
	Message string `json:"message"`
}

func (e *clientError) String() string {
	if e == nil {
		return "no error"
	}
	return fmt.Sprintf("%s (%d) %q", e.Kind, e.Code, e.Message)
}

// clientProcess is a running program of e2e/clients.
type clientProcess struct {
	version string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  *processOutput
	read    chan struct{} // closed when its output has ended

	mu      sync.Mutex
	lastTag int
	waiting map[string]chan clientReport // by tag; each gets one report
	ended   error                        // why nothing more will be reported
}

var (
	errClientEnded = errors.New("the client's program ended")
	errNoVersion   = errors.New("the client's program did not tell its version")
)

// clientProcesses are those that run, by command line. Tests share them, since
// some take seconds to start; TestMain ends them.
var clientProcesses struct {
	sync.Mutex
	running map[string]*clientProcess
}

// startClient returns the program of a command line, running it if no test did
// so far. Its producers need names of their own.
func startClient(t *testing.T, argv []string) *clientProcess {
	t.Helper()
	c, err := sharedClient(argv)
	if err != nil {
		t.Fatal(err)
	}
	_, from := c.stderr.lines(0)
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := c.stderr.lines(from)
			t.Logf("what %s said:\n%s", strings.Join(argv, " "), strings.Join(said[max(0, len(said)-30):], "\n"))
		}
	})
	return c
}

func sharedClient(argv []string) (*clientProcess, error) {
	key := strings.Join(argv, " ")
	clientProcesses.Lock()
	defer clientProcesses.Unlock()
	if c := clientProcesses.running[key]; c != nil && c.alive() {
		return c, nil
	}
	c, err := launchClient(argv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if clientProcesses.running == nil {
		clientProcesses.running = make(map[string]*clientProcess)
	}
	clientProcesses.running[key] = c
	return c, nil
}

// endClients ends all programs of clients; they must do so in order.
func endClients() error {
	clientProcesses.Lock()
	defer clientProcesses.Unlock()
	var failed error
	for key, c := range clientProcesses.running {
		if err := c.end(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w\n%s", key, err, c.stderr.tail(10)))
		}
	}
	return failed
}

func launchClient(argv []string) (*clientProcess, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &clientProcess{
		cmd: cmd, stdin: stdin, stderr: &processOutput{},
		waiting: make(map[string]chan clientReport), read: make(chan struct{}),
	}
	cmd.Stderr = c.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	var hello struct {
		Version string `json:"version"`
	}
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &hello) != nil || hello.Version == "" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("%w: %q\n%s", errNoVersion, lines.Text(), c.stderr.tail(30))
	}
	c.version = hello.Version
	go c.readReports(lines)
	return c, nil
}

// alive reports whether the program takes commands.
func (c *clientProcess) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == nil
}

// end closes the program's input, and waits for it.
func (c *clientProcess) end() error {
	_ = c.stdin.Close()
	limit := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer limit.Stop()
	<-c.read
	return c.cmd.Wait()
}

// readReports ends when the program does.
func (c *clientProcess) readReports(lines *bufio.Scanner) {
	defer close(c.read)
	for lines.Scan() {
		var report clientReport
		if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
			_, _ = fmt.Fprintf(c.stderr, "not a report: %s\n", lines.Bytes())
			continue
		}
		c.mu.Lock()
		if to, ok := c.waiting[report.Tag]; ok {
			delete(c.waiting, report.Tag)
			to <- report
		} else {
			_, _ = fmt.Fprintf(c.stderr, "report nobody waits for: %s\n", lines.Bytes())
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = errors.Join(errClientEnded, lines.Err())
	for _, to := range c.waiting {
		close(to)
	}
	clear(c.waiting)
}

// begin is post for what may not fail.
func (c *clientProcess) begin(t *testing.T, command clientCommand) <-chan clientReport {
	t.Helper()
	to, err := c.post(command)
	if err != nil {
		t.Fatalf("%+v: %v\n%s", command, err, c.stderr.tail(30))
	}
	return to
}

// post gives a command, and the channel that its report will come on; it is closed
// without one when the program ends.
func (c *clientProcess) post(command clientCommand) (<-chan clientReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, c.ended
	}
	c.lastTag++
	command.Tag = strconv.Itoa(c.lastTag)
	if command.Acks == "" {
		command.Acks = "all"
	}
	line, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	to := make(chan clientReport, 1)
	c.waiting[command.Tag] = to
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	return to, nil
}

// await takes the report of a command.
func (c *clientProcess) await(t *testing.T, report <-chan clientReport) clientReport {
	t.Helper()
	limit := time.NewTimer(clientTimeout)
	defer limit.Stop()
	select {
	case got, ok := <-report:
		if !ok {
			t.Fatalf("%v\n%s", errClientEnded, c.stderr.tail(30))
		}
		return got
	case <-limit.C:
		t.Fatalf("no report in %v\n%s", clientTimeout, c.stderr.tail(30))
	}
	panic("unreachable")
}

// do gives a command and takes its report.
func (c *clientProcess) do(t *testing.T, command clientCommand) clientReport {
	t.Helper()
	return c.await(t, c.begin(t, command))
}

// must is do for what may not fail.
func (c *clientProcess) must(t *testing.T, command clientCommand) int64 {
	t.Helper()
	got := c.do(t, command)
	if got.Error != nil {
		t.Fatalf("%s %s: %v", command.Do, command.Producer, got.Error)
	}
	return got.Offset
}

// The command lines of the programs, installed or built if need be.

func javaProgram(t *testing.T) []string {
	t.Helper()
	jars, err := kafkacluster.FetchJars(t.Context(), newestJava)
	if err != nil {
		t.Fatal(err)
	}
	argv := javaClient(jars)
	argv[len(argv)-1] = "clients/java/Refusals.java"
	return argv
}

func pythonProgram(file string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		return []string{pythonClient(t)[0], "-B", filepath.Join("clients/python", file)}
	}
}

func nodeProgram(t *testing.T) []string {
	t.Helper()
	cache, err := filepath.Abs("../.cache/node")
	if err != nil {
		t.Fatal(err)
	}
	path := installed(t, "clients/node/install", cache)
	return []string{"env", "NODE_PATH=" + path, "node", "clients/node/client.js"}
}

// goClients builds the program of the Go clients once.
var goClients = sync.OnceValues(func() (string, error) { return buildGoClients("clients") })

func buildGoClients(name string, flags ...string) (string, error) {
	binary, err := filepath.Abs("../.cache/go/" + name)
	if err != nil {
		return "", err
	}
	build := exec.Command("go", slices.Concat([]string{"build", "-o", binary}, flags, []string{"."})...)
	build.Dir = "clients/go"
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the Go clients: %w\n%s", err, output)
	}
	return binary, nil
}

func goProgram(library string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		binary, err := goClients()
		if err != nil {
			t.Fatal(err)
		}
		return []string{binary, library}
	}
}
