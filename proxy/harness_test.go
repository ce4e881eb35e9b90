package proxy_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what should happen soon: a test that waits longer fails.
const patience = 20 * time.Second

// logBuffer collects log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}

// running is a proxy under test.
type running struct {
	*proxy.Proxy
	t    *testing.T
	stop context.CancelFunc
	done chan error // capacity 1: what Run returned
	log  *logBuffer
	cut  *proxy.DrainError // what Run returned, once waited for

	metrics *sdk.ManualReader
}

// metric reads the sum of a counter, over the series whose attribute has the
// value; "" takes all.
func (r *running) metric(name, value string) int64 {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(context.Background(), &all); err != nil {
		r.t.Fatalf("collect metrics: %v", err)
	}
	sum := int64(0)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				for _, a := range append(point.Attributes.ToSlice(), attribute.String("", "")) {
					if a.Value.AsString() == value {
						sum += point.Value
					}
				}
			}
		}
	}
	return sum
}

func (r *running) rewritten(api string) int64 { return r.metric("offsetproxy.answers.rewritten", api) }

// start runs a proxy and waits until it is ready.
func start(t *testing.T, cfg proxy.Config) *running {
	t.Helper()
	r := startUnready(t, cfg)
	select {
	case <-r.Ready():
	case err := <-r.done:
		t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		t.Fatal("proxy did not become ready")
	}
	return r
}

func startUnready(t *testing.T, cfg proxy.Config) *running {
	t.Helper()
	r := &running{t: t, done: make(chan error, 1), log: &logBuffer{}}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = time.Second
	}
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.metrics = sdk.NewManualReader()
	cfg.Meter = sdk.NewMeterProvider(sdk.WithReader(r.metrics)).Meter("test")
	var err error
	if r.Proxy, err = proxy.New(cfg); err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		r.wait()
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", r.log.buf.String())
		}
	})
	return r
}

// wait waits until Run has returned.
func (r *running) wait() {
	r.t.Helper()
	select {
	case err := <-r.done:
		var cut *proxy.DrainError // as the test may want it
		if err != nil && !errors.As(err, &cut) {
			r.t.Errorf("Run: %v", err)
		}
		r.cut = cmp.Or(r.cut, cut)
		r.done <- nil
	case <-time.After(patience):
		r.t.Fatal("Run did not return")
	}
}

// awaitLog waits until a line is in the log.
func (r *running) awaitLog(text string) {
	r.t.Helper()
	await(r.t, "log line "+text, func() bool { return r.log.count(text) > 0 })
}

// await polls for something that other goroutines bring about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// scripted runs a proxy before one scripted broker with node id 0. The script
// gets every request but those of the proxy's own discovery.
func scripted(t *testing.T, cfg proxy.Config, script func(c *kafkatest.Conn, r kafkatest.Request) bool) *running {
	t.Helper()
	var server *kafkatest.Server
	up := make(chan struct{})
	server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		for {
			request, ok := c.Next()
			if !ok {
				return
			}
			if string(request.ClientID) == "offsetproxy" {
				c.Answer(request, kafkatest.Metadata(kafkatest.Broker{Host: "127.0.0.1", Port: server.Port()}))
				continue
			}
			if !script(c, request) {
				return
			}
		}
	})
	close(up)
	cfg.Bootstrap = []string{server.Addr()}
	return start(t, cfg)
}

// echo answers a request with its default answer, and acks=0 with none.
func echo(c *kafkatest.Conn, r kafkatest.Request) bool {
	if acks, err := r.ProduceAcks(r.Frame); err == nil && acks == 0 {
		return true
	}
	c.Answer(r, kmsg.ResponseForKey(r.APIKey))
	return true
}

func versioned[R kmsg.Request](r R, version int16) R {
	r.SetVersion(version)
	return r
}

func produceRequest(version, acks int16) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, acks, 1000
	if version >= 3 && version%2 == 0 {
		id := "txn"
		r.TransactionID = &id
	}
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "t", [16]byte{1}
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = []byte("not looked at")
	topic.Partitions = append(topic.Partitions, partition)
	r.Topics = append(r.Topics, topic)
	return r
}
