package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

const (
	partitions = 16
	rounds     = 7
	plainTopic = "bench-plain"
	fencedRule = "bench-fenced"

	bulkBatch    = 64 << 10
	bulkInFlight = 5
	bulkFor      = 1500 * time.Millisecond
	pingBatch    = 200
	pings        = 1500
	cpuTicks     = 100 // of /proc/PID/stat per second
)

// target is a way to the broker, with or without conditions.
type target struct {
	name        string
	address     string
	topic       string
	conditional bool
	pid         int // of the proxy; 0: none
}

// BenchmarkProduce measures bulk throughput and one-in-flight latency: direct,
// through a proxy on a topic without a rule, and through it conditionally.
func BenchmarkProduce(b *testing.B) {
	targets := setUp(b)
	for b.Loop() {
		bulk(b, targets)
		ping(b, targets)
	}
}

func bulk(b *testing.B, targets []target) {
	rates := make([][]float64, len(targets))
	cpu := make([]float64, len(targets))
	bytes := make([]float64, len(targets))
	for round := range rounds + 1 {
		for i, t := range targets {
			before := cpuSeconds(t.pid)
			sent, took := measureBulk(b, t, bulkFor)
			if round == 0 {
				continue // warm-up
			}
			cpu[i] += cpuSeconds(t.pid) - before
			bytes[i] += float64(sent)
			rates[i] = append(rates[i], float64(sent)/took.Seconds()/1e6)
		}
	}
	fmt.Printf("\nbulk: %d KiB batches, %d partitions, %d in flight (conditional: 1 per partition), %d rounds\n", bulkBatch>>10, partitions, bulkInFlight, rounds)
	for i, t := range targets {
		perGB := 0.0
		if t.pid != 0 {
			perGB = cpu[i] / (bytes[i] / 1e9)
		}
		ratio := pairedRatio(rates[i], rates[0])
		fmt.Printf("  %-22s %7.1f MB/s   %.2f of direct   proxy %.2f cpu-s/GB\n", t.name, median(rates[i]), ratio, perGB)
		b.ReportMetric(ratio, unit(t)+"-bulk-ratio")
	}
}

func ping(b *testing.B, targets []target) {
	p50 := make([][]float64, len(targets))
	for round := range rounds + 1 {
		for i, t := range targets {
			took := measurePings(b, t, pings)
			if round > 0 {
				p50[i] = append(p50[i], median(took))
			}
		}
	}
	fmt.Printf("\none in flight: %d bytes, %d requests a round, %d rounds\n", pingBatch, pings, rounds)
	for i, t := range targets {
		fmt.Printf("  %-22s p50 %6.0f µs   %+5.0f µs   %.2f of direct\n", t.name, median(p50[i]), median(p50[i])-median(p50[0]), pairedRatio(p50[i], p50[0]))
		b.ReportMetric(median(p50[i])-median(p50[0]), unit(t)+"-p50-extra-µs")
	}
}

// setUp starts a broker and a proxy and makes the topics.
func setUp(b *testing.B) []target {
	ctx := b.Context()
	cluster, err := kafkacluster.Start(ctx, kafkacluster.Options{Brokers: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cluster.Stop() })
	dir := b.TempDir()
	program := filepath.Join(dir, "offsetproxy")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "../../cmd/offsetproxy")
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, output)
	}
	first, err := kafkacluster.FreePorts(4)
	if err != nil {
		b.Fatal(err)
	}
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(first))
	proxy := exec.Command(program, "serve", "--bootstrap", cluster.Bootstrap(), "--listen", listen,
		"--broker-ports", fmt.Sprintf("%d-%d", first+1, first+3), "--require", fencedRule)
	proxy.SysProcAttr = kafkacluster.DieWithParent()
	proxy.Stderr = os.Stderr
	if err := proxy.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = proxy.Process.Signal(syscall.SIGTERM)
		_ = proxy.Wait()
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Bootstrap()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopics(ctx, partitions, 1, nil, plainTopic, fencedRule); err != nil {
		b.Fatal(err)
	}
	for awaited := time.Now().Add(30 * time.Second); ; {
		ends, err := admin.ListEndOffsets(ctx, plainTopic, fencedRule)
		if err == nil && ends.Error() == nil {
			break
		}
		if time.Now().After(awaited) {
			b.Fatalf("no leaders: %v, %v", err, ends.Error())
		}
	}
	through := awaitLeader(b, listen)
	return []target{
		{name: "direct", address: cluster.Bootstrap(), topic: plainTopic},
		{name: "proxy, rule off", address: through, topic: plainTopic, pid: proxy.Process.Pid},
		{name: "proxy, require", address: through, topic: fencedRule, conditional: true, pid: proxy.Process.Pid},
	}
}

// awaitLeader waits until the proxy serves and gives its address for the only
// broker.
func awaitLeader(b *testing.B, bootstrap string) string {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		brokers, err := kadm.NewClient(client).ListBrokers(ctx)
		if err == nil && len(brokers) == 1 {
			return net.JoinHostPort(brokers[0].Host, strconv.Itoa(int(brokers[0].Port)))
		}
	}
	b.Fatal("the proxy does not serve")
	return ""
}

// cpuSeconds is the processor time a process has used; 0 for pid 0.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if pid == 0 || err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / cpuTicks
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// pairedRatio is the median of the ratios of what was measured in one round.
func pairedRatio(values, base []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / base[i]
	}
	return median(ratios)
}

// unit is the target's name as a metric's unit may have it.
func unit(t target) string { return strings.NewReplacer(" ", "-", ",", "").Replace(t.name) }
