package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

// background runs the program until stop is called and gives its output line
// by line.
type background struct {
	lines chan string // sent by the reader, closed when the output ends
	code  chan int    // one value, when run has returned
	stop  context.CancelFunc
}

// start runs the program; log chooses standard error instead of output.
func start(t *testing.T, log bool, args ...string) *background {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &background{lines: make(chan string, 1000), code: make(chan int, 1), stop: cancel}
	r, w := io.Pipe()
	stdout, stderr := io.Writer(w), io.Discard
	if log {
		stdout, stderr = io.Discard, w
	}
	go func() {
		b.code <- run(ctx, args, strings.NewReader(""), stdout, stderr)
		w.Close()
	}()
	go func() {
		defer close(b.lines)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			b.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range b.lines {
		}
	})
	return b
}

// await gives the first line for which ok is true.
func (b *background) await(t *testing.T, ok func(string) bool) string {
	t.Helper()
	timeout := time.After(30 * time.Second)
	var seen []string
	for {
		select {
		case line, open := <-b.lines:
			if !open {
				t.Fatalf("ended after:\n%s", strings.Join(seen, "\n"))
			}
			if ok(line) {
				return line
			}
			seen = append(seen, line)
		case <-timeout:
			t.Fatalf("no such line among:\n%s", strings.Join(seen, "\n"))
		}
	}
}

// logLine is what tests read of a line in JSON.
type logLine struct{ Msg, Listen, Brokers, Admin string }

func parseLine(t *testing.T, line string) logLine {
	t.Helper()
	var l logLine
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return l
}

// awaitServing gives the line that has the addresses.
func (b *background) awaitServing(t *testing.T) logLine {
	t.Helper()
	return parseLine(t, b.await(t, has(`"msg":"serving"`)))
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServeFromFlags(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Brokers: 3, Topics: map[string]int32{"events": 1, "free": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	b := start(t, true, "serve", "--bootstrap", strings.Join(cluster.Addrs(), ","), "--listen", "127.0.0.1:0",
		"--broker-kind", "kfake", "--require", "events", "--metrics-listen", "127.0.0.1:0", "--log-format", "json")
	serving := b.awaitServing(t)
	if n := len(strings.Fields(serving.Brokers)); n != 3 {
		t.Errorf("%q names %d brokers, want 3", serving.Brokers, n)
	}
	if code, _ := get(t, "http://"+serving.Admin+"/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d", code)
	}
	if code, body := get(t, "http://"+serving.Admin+"/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, _ := get(t, "http://"+serving.Admin+"/metrics"); code != http.StatusOK {
		t.Errorf("/metrics: %d", code)
	}
	appendAs := func(topic, expect string) outcome {
		return call(t, "", "append", "--bootstrap", serving.Listen, "--topic", topic, "--expect", expect, "v")
	}
	if got := appendAs("free", "0"); got.code != exitOK || got.stdout != "0\n" {
		t.Errorf("append through the proxy: got %+v", got)
	}
	if got := appendAs("free", "0"); got.code != exitElsewhere {
		t.Errorf("append on a topic without a rule: got %+v, want code %d", got, exitElsewhere)
	}
	b.stop()
	// Lengths of time are text in JSON too, and not nanoseconds.
	var draining struct{ Timeout string }
	if line := b.await(t, has(`"msg":"draining"`)); json.Unmarshal([]byte(line), &draining) != nil || draining.Timeout != "10s" {
		t.Errorf("%s: got timeout %q, want 10s", line, draining.Timeout)
	}
	if code := <-b.code; code != exitOK {
		t.Errorf("exit code %d after a drain, want 0", code)
	}
}

func TestProfilesAreServedOnlyWhenWanted(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	for flag, want := range map[string]int{"--pprof": http.StatusOK, "--log-level=info": http.StatusNotFound} {
		b := start(t, true, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0",
			"--metrics-listen", "127.0.0.1:0", "--log-format", "json", flag)
		admin := b.awaitServing(t).Admin
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1"} {
			if code, _ := get(t, "http://"+admin+path); code != want {
				t.Errorf("with %s: %s: %d, want %d", flag, path, code, want)
			}
		}
		_, metrics := get(t, "http://"+admin+"/metrics")
		for _, name := range []string{"go_goroutines", "go_memstats_heap_inuse_bytes", "process_resident_memory_bytes"} {
			if !strings.Contains(metrics, "\n"+name+" ") && runtime.GOOS == "linux" {
				t.Errorf("/metrics lacks %s", name)
			}
		}
		b.stop()
		if code := b.exit(t); code != exitOK {
			t.Errorf("exit code %d after a drain, want 0", code)
		}
	}
}

// Profiles that others than this machine's programs can ask for are warned of.
func TestProfilesForEverybodyAreWarnedOf(t *testing.T) {
	for _, test := range []struct {
		listen   string
		profiles bool
		want     int
	}{{"127.0.0.1:0", true, 0}, {"localhost:0", true, 0}, {":0", true, 1}, {":0", false, 0}} {
		var log bytes.Buffer
		admin, err := startAdmin(test.listen, test.profiles, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != test.want {
			t.Errorf("%s, profiles %t: %d warnings, want %d:\n%s", test.listen, test.profiles, got, test.want, &log)
		}
	}
}

func TestProfilesNeedAnAddress(t *testing.T) {
	got := call(t, "", "serve", "--bootstrap", "k:1", "--pprof")
	want := "offsetproxy: --pprof: profiles are served beside the metrics, and no metrics.listen says where\n"
	if got.code != exitUsage || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("got %+v, want code %d and %q", got, exitUsage, want)
	}
}

func TestServeFromAFile(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{Brokers: 2, Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	file := filepath.Join(t.TempDir(), "offsetproxy.yaml")
	text := "bootstrap: [" + strings.Join(cluster.Addrs(), ", ") + `]
listen: 127.0.0.1:0
brokers: {kind: kfake}
rules: [{topics: events, mode: require}]
metrics: {listen: 127.0.0.1:0}
log: {level: error, format: text}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, true, "serve", "--config", file, "--log-level", "info", "--log-format", "json")
	b.await(t, has("overrides the file", "log-level info"))
	serving := b.awaitServing(t)
	if n := len(strings.Fields(serving.Brokers)); n != 2 {
		t.Errorf("%q names %d brokers, want 2", serving.Brokers, n)
	}
	if code, _ := get(t, "http://"+serving.Admin+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	for _, want := range []int{exitOK, exitRefused} {
		if got := call(t, "", "append", "--bootstrap", serving.Listen, "--topic", "events", "--expect", "0", "v"); got.code != want {
			t.Errorf("append: got %+v, want code %d", got, want)
		}
	}
	b.stop()
	if code := b.exit(t); code != exitOK {
		t.Errorf("exit code %d after a drain, want 0", code)
	}
}

// While a drain waits for an answer, no new traffic should be sent here.
func TestNotReadyWhileDraining(t *testing.T) {
	broker := newScriptedBroker(t, 0)
	b := start(t, true, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0", "--log-format", "json",
		"--metrics-listen", "127.0.0.1:0", "--drain-timeout", "1h")
	serving := b.awaitServing(t)
	ready := func() int { code, _ := get(t, "http://"+serving.Admin+"/readyz"); return code }
	if code := ready(); code != http.StatusOK {
		t.Errorf("/readyz: %d before the drain", code)
	}
	client := kafkatest.Dial(t, serving.Listen)
	client.Send(1, kmsg.NewPtrListGroupsRequest())
	<-broker.arrived
	b.stop()
	deadline := time.Now().Add(patience)
	code := ready()
	for ; code == http.StatusOK && time.Now().Before(deadline); code = ready() {
		runtime.Gosched()
	}
	if code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d during the drain, want 503", code)
	}
	if code, _ := get(t, "http://"+serving.Admin+"/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d during the drain", code)
	}
	broker.release()
	if got := client.NextID(); got != 1 {
		t.Errorf("got an answer to %d, want 1", got)
	}
	if code := b.exit(t); code != exitOK {
		t.Errorf("exit code %d after a drain, want 0", code)
	}
}

// Who tries dev must not be able to end it by what a client sends: kfake ends
// its process on an api key that it does not know.
func TestDevSurvivesWhatKfakeDoesNotKnow(t *testing.T) {
	b := start(t, false, "dev", "--listen", "127.0.0.1:0")
	fields := strings.Fields(b.await(t, has("proxy ")))
	listen := strings.TrimSuffix(fields[1], ",")
	for _, key := range []uint16{9999, 0xffff, 1000, 0x7fff} {
		client := kafkatest.Dial(t, listen)
		frame := binary.BigEndian.AppendUint16(kafkatest.Length(10), key)
		frame = append(frame, 0, 0, 0, 0, 0, 1, 0xff, 0xff) // version 0, correlation id 1, no client id
		client.SendBytes(frame)
		client.ExpectClosed()
	}
	if got := call(t, "", "next", "--bootstrap", listen, "--topic", "events"); got.code != exitOK || got.stdout != "0\n" {
		t.Errorf("next: got %+v, want 0", got)
	}
	b.stop()
	if code := b.exit(t); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// The advice for a missing topic: any admin client, through the proxy.
func TestTopicIsCreatedThroughTheProxy(t *testing.T) {
	b := start(t, false, "dev", "--listen", "127.0.0.1:0")
	listen := strings.TrimSuffix(strings.Fields(b.await(t, has("proxy ")))[1], ",")
	appendTo := func() outcome {
		return call(t, "", "append", "--bootstrap", listen, "--topic", "new", "--expect", "0", "v")
	}
	if got := appendTo(); got.code != exitFailed || !strings.Contains(got.stderr, "through the proxy") {
		t.Errorf("append to a missing topic: got %+v", got)
	}
	topic := demoTopic{bootstrap: []string{listen}}
	err := topic.admin(t.Context(), func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, 1, 1, nil, "new")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := appendTo(); got.code != exitOK {
		t.Errorf("append to the new topic: got %+v", got)
	}
}

// Ctrl-C is heard also while there is nothing to serve yet.
func TestDevInterruptedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"dev", "--listen", "127.0.0.1:0"}, strings.NewReader(""), io.Discard, io.Discard); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// Conditional appends as a person tries them, by the commands that dev prints.
func TestDevAndItsThreeCommands(t *testing.T) {
	b := start(t, false, "dev", "--listen", "127.0.0.1:0")
	var commands [][]string
	b.await(t, func(s string) bool {
		if fields := strings.Fields(s); len(fields) > 1 && fields[0] == "offsetproxy" {
			s, _, _ = strings.Cut(s, "(")
			commands = append(commands, strings.Fields(s)[1:])
		}
		return strings.HasPrefix(s, "Ctrl-C")
	})
	if len(commands) != 3 {
		t.Fatalf("got %d commands, want 3: %q", len(commands), commands)
	}
	for i, want := range []outcome{
		{exitOK, "0\n", ""},
		{exitRefused, "", "refused: taken: expected=0 next=1\n"},
		{exitOK, "1\n", ""},
	} {
		if got := call(t, "", commands[i]...); got != want {
			t.Errorf("%q: got %+v, want %+v", commands[i], got, want)
		}
	}
	b.stop()
	if code := <-b.code; code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestServeWithoutItsPassword says which is missing, instead of trying to log
// in with none for ever.
func TestServeWithoutItsPassword(t *testing.T) {
	got := call(t, "", "serve", "--bootstrap", "k:1", "--sasl-mechanism", "PLAIN", "--sasl-user", "proxy", "--sasl-password-env", "PASSWORD_OF_NOBODY")
	if got.code != exitUsage || !strings.Contains(got.stderr, "environment variable PASSWORD_OF_NOBODY is not set") {
		t.Errorf("got %+v", got)
	}
}

func TestServeCannotListen(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := call(t, "", "serve", "--bootstrap", cluster.Addrs()[0], "--broker-kind", "kfake", "--listen", taken.Addr().String())
	if got.code != exitFailed || !strings.Contains(got.stderr, taken.Addr().String()) || !strings.Contains(got.stderr, "Another program uses that port") {
		t.Errorf("got %+v, want code %d, the address and what to do", got, exitFailed)
	}
}

func TestServeSaysWhatTheSystemGivesTooLittleOf(t *testing.T) {
	const short = "the system gives less than the settings allow"
	broker := newScriptedBroker(t, 0)
	broker.release()
	t.Setenv("GOMEMLIMIT", "100MiB")
	p := startProcess(t, "serve", "--bootstrap", broker.server.Addr(), "--listen", "127.0.0.1:0", "--log-format", "json")
	p.await(t, has(short, "100MiB (GOMEMLIMIT)", "Raise the limit"))
}
