package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// TestCaptureGoldenFrames writes the Produce requests of real clients, as they
// come over the wire but without their length, to the directory that -golden
// names: produce-v9-java-4.1.1-lz4.bin. Each holds one batch of three records,
// with a key, a null key and an empty key, and the headers expected-offset (41,
// 42, 43) and append-id; kcat's one record. `make golden` runs it.
func TestCaptureGoldenFrames(t *testing.T) {
	if *goldenDir == "" {
		t.Skip("runs with -golden=DIRECTORY only")
	}
	tap := startTap(t)
	cluster, err := kafkacluster.Start(t.Context(), kafkacluster.Options{Brokers: 1, Properties: map[string]string{
		// The broker sends its clients through the tap, which so need not
		// touch a byte.
		"advertised.listeners": "PLAINTEXT://" + tap.address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Stop() }()
	tap.upstream = cluster.Address(1)
	createGoldenTopic(t, tap.address)
	if err := os.MkdirAll(*goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}

	java := javaClient(cluster.Jars())
	for _, codec := range append(slices.Clone(codecs), "transactional") {
		tap.capture(t, "java-"+cluster.Version(), codec, func() { commandOutput(t, java, "golden", tap.address, goldenTopic, codec) })
	}
	python := pythonClient(t)
	librdkafka := "librdkafka-" + strings.TrimSpace(commandOutput(t, python, "version"))
	for _, codec := range codecs {
		tap.capture(t, librdkafka, codec, func() { commandOutput(t, python, "golden", tap.address, goldenTopic, codec) })
	}
	t.Run("kcat", func(t *testing.T) { kcatGolden(t, tap) })
}

const goldenTopic = "golden"

func createGoldenTopic(t *testing.T, address string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	response, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, goldenTopic)
	if err != nil || response.Err != nil {
		t.Fatal(err, response.Err)
	}
}

// kcatGolden has one set of headers for all records of a call, so its batches
// hold a single record.
func kcatGolden(t *testing.T, tap *tap) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed")
	}
	version := regexp.MustCompile(`Version ([0-9.]+) .*librdkafka ([0-9.]+)`).FindStringSubmatch(commandOutput(t, []string{kcat}, "-V"))
	if version == nil {
		t.Fatal("kcat does not tell its version")
	}
	message := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(message, []byte("value 0 "+strings.Repeat("x", 40)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, codec := range codecs {
		tap.capture(t, fmt.Sprintf("kcat-%s-librdkafka-%s", version[1], version[2]), codec, func() {
			commandOutput(t, []string{kcat}, "-P", "-b", tap.address, "-t", goldenTopic, "-p", "0", "-z", codec,
				"-k", "key", "-H", "expected-offset=41", "-H", "append-id=a1", message)
		})
	}
}

// tap relays connections and keeps the first Produce request that it sees.
type tap struct {
	address  string
	upstream string // set before the first client comes

	mu    sync.Mutex
	first []byte // nil: none since the last capture began
}

func startTap(t *testing.T) *tap {
	t.Helper()
	first, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	tap := &tap{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go tap.relay(client)
		}
	}()
	return tap
}

// relay ends when either side does.
func (p *tap) relay(client net.Conn) {
	defer func() { _ = client.Close() }()
	broker, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = broker.Close() }()
	go func() {
		_, _ = io.Copy(client, broker)
		_ = client.Close()
	}()
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		p.see(frame)
		if _, err := broker.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			return
		}
	}
}

func (p *tap) see(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil && len(frame) > 4 && int16(binary.BigEndian.Uint16(frame)) == kmsg.Produce.Int16() {
		p.first = frame
	}
}

// capture writes the first Produce request of what send does.
func (p *tap) capture(t *testing.T, client, codec string, send func()) {
	t.Helper()
	p.mu.Lock()
	p.first = nil
	p.mu.Unlock()
	send()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		t.Errorf("%s %s: no Produce request came", client, codec)
		return
	}
	name := fmt.Sprintf("produce-v%d-%s-%s.bin", binary.BigEndian.Uint16(p.first[2:]), client, codec)
	t.Logf("%s, %d bytes", name, len(p.first))
	if err := os.WriteFile(filepath.Join(*goldenDir, name), p.first, 0o644); err != nil {
		t.Error(err)
	}
}
