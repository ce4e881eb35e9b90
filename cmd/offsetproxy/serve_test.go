package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
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
	var serving struct{ Msg, Listen, Brokers, Admin string }
	line := b.await(t, func(s string) bool { return strings.Contains(s, `"msg":"serving"`) })
	if err := json.Unmarshal([]byte(line), &serving); err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(serving.Brokers)); n != 3 {
		t.Errorf("%q names %d brokers, want 3", serving.Brokers, n)
	}
	if code, _ := get(t, "http://"+serving.Admin+"/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d", code)
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
	if code := <-b.code; code != exitOK {
		t.Errorf("exit code %d after a drain, want 0", code)
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

func TestServeCannotListen(t *testing.T) {
	cluster, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	got := call(t, "", "serve", "--bootstrap", cluster.Addrs()[0], "--broker-kind", "kfake", "--listen", cluster.Addrs()[0])
	if got.code != exitFailed || !strings.Contains(got.stderr, cluster.Addrs()[0]) {
		t.Errorf("got %+v, want code %d and the address", got, exitFailed)
	}
}
