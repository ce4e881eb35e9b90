package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
)

// collector takes what is sent to it by OTLP over HTTP. Names in protocol buffers are
// plain text.
type collector struct {
	*httptest.Server

	mu       sync.Mutex
	received map[string]*bytes.Buffer // by path
}

func newCollector(t *testing.T) *collector {
	c := &collector{received: map[string]*bytes.Buffer{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.received[r.URL.Path] == nil {
			c.received[r.URL.Path] = new(bytes.Buffer)
		}
		_, _ = io.Copy(c.received[r.URL.Path], r.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

// text is all that came to a path.
func (c *collector) text(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received[path] == nil {
		return ""
	}
	return c.received[path].String()
}

// serveTold runs a proxy in front of an embedded broker, appends through it, and ends
// it. It gives the log.
func serveTold(t *testing.T, flags ...string) (log string, metrics string) {
	t.Helper()
	cluster, err := embedded.Start(embedded.Config{Brokers: 1, Topics: map[string]int32{"events": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	b := start(t, true, append([]string{"serve", "--bootstrap", strings.Join(cluster.Addrs(), ","), "--listen", "127.0.0.1:0",
		"--broker-kind", "kfake", "--require", "events", "--log-format", "json", "--log-level", "debug"}, flags...)...)
	var lines []string
	serving := parseLine(t, b.await(t, func(line string) bool {
		lines = append(lines, line)
		return strings.Contains(line, `"msg":"serving"`)
	}))
	for _, expect := range []string{"0", "0"} { // won, and refused
		call(t, "", "append", "--bootstrap", serving.Listen, "--topic", "events", "--expect", expect, "value-that-is-secret")
	}
	if serving.Admin != "" {
		_, metrics = get(t, "http://"+serving.Admin+"/metrics")
	}
	b.stop()
	for line := range b.lines {
		lines = append(lines, line)
	}
	if code := <-b.code; code != exitOK {
		t.Errorf("exit code %d after a drain, want 0", code)
	}
	return strings.Join(lines, "\n"), metrics
}

func TestMetricsAndTracesAreSent(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_SERVICE_NAME", "my-proxy")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=night-shift")
	log, _ := serveTold(t) // no /metrics
	for path, texts := range map[string][]string{
		// Sent at the end, so what was counted last is there.
		"/v1/metrics": {"offsetproxy.appends", "taken", "offsetproxy.appends.hold", "offsetproxy.config.reloads", "my-proxy", "night-shift"},
		"/v1/traces":  {"conditional append", "events", "won", "taken", "my-proxy", "night-shift"},
	} {
		got := c.text(path)
		for _, text := range texts {
			if !strings.Contains(got, text) {
				t.Errorf("%s: nothing that was sent has %q", path, text)
			}
		}
		if strings.Contains(got, "secret") {
			t.Errorf("%s: the content of a record was sent", path)
		}
	}
	if strings.Contains(log, "not sent") || strings.Contains(log, "could not be sent") {
		t.Errorf("the log tells of what was not sent:\n%s", log)
	}
}

func TestNothingIsSentByDefault(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	log, metrics := serveTold(t, "--metrics-listen", "127.0.0.1:0")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) > 0 {
		t.Error("something was sent, and nobody has asked for it")
	}
	if !strings.Contains(log, "OTEL_METRICS_EXPORTER=otlp has metrics sent") {
		t.Errorf("the log does not say that the endpoint is not used:\n%s", log)
	}
	for _, line := range []string{`offsetproxy_appends_total{outcome="won"} 1`, `offsetproxy_appends_hold_seconds_count{until="sent"} 1`, `offsetproxy_appends_hold_seconds_bucket{until="sent",le="60"} 1`} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("/metrics does not have %q:\n%s", line, metrics)
		}
	}
	if strings.Contains(metrics, "otel_scope") {
		t.Error("/metrics has the labels of scopes, which tell nobody anything")
	}
}

// Nobody hears of a collector that cannot be reached but who reads the log.
func TestCollectorThatCannotBeReached(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, protocol := range []otlpProtocol{otlpHTTP, otlpGRPC} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", string(protocol))
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+gone.Addr().String())
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
			t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "5")
			log, metrics := serveTold(t, "--metrics-listen", "127.0.0.1:0")
			if !strings.Contains(metrics, `offsetproxy_appends_total{outcome="won"} 1`) {
				t.Errorf("the append was not won:\n%s", metrics)
			}
			if got := strings.Count(log, "telemetry is not sent; clients are served all the same"); got != 1 {
				t.Errorf("the log tells of it %d times, want once:\n%s", got, log)
			}
		})
	}
}

func TestServeRefusesAWrongEnvironment(t *testing.T) {
	t.Setenv("OTEL_METRICS_EXPORTER", "carrier-pigeon")
	t.Setenv("OTEL_TRACES_EXPORTER", "owl")
	got := call(t, "", "serve", "--bootstrap", "127.0.0.1:1")
	if got.code != exitUsage {
		t.Errorf("got code %d, want %d", got.code, exitUsage)
	}
	for _, name := range []string{"environment: OTEL_METRICS_EXPORTER: ", "environment: OTEL_TRACES_EXPORTER: "} {
		if !strings.Contains(got.stderr, name) {
			t.Errorf("%q does not name %s", got.stderr, name)
		}
	}
}

func TestExporterErrorsAreLoggedNowAndThen(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	e := &exporterErrors{logger: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	lines := func() int { return strings.Count(log.String(), "\n") }
	for range 3 {
		e.Handle(errors.New("no route"))
	}
	if got := lines(); got != 1 {
		t.Errorf("got %d lines, want 1", got)
	}
	now = now.Add(exporterErrorInterval)
	e.Handle(errors.New("no route"))
	if got := lines(); got != 2 || !strings.Contains(log.String(), "more_since_last_told=2") {
		t.Errorf("got %d lines, want 2, the last one with how many were left out:\n%s", got, log.String())
	}
}
