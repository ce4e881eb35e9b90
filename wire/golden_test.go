package wire

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Golden frames are requests as real clients have sent them, without the four
// length bytes, one to a file. A file is named
//
//	produce-v<version>-<client>-<version of the client>-<what it holds>.bin
//
// What it holds is, between dashes, a codec's name or "transactional", and then
// "plain" if the records have no condition; goldenClients has the rest.
const goldenDir = "testdata/golden"

// goldenClient is what the frames of one client hold besides.
type goldenClient struct {
	records   int32 // in each batch
	expected  int64 // by the first record, unless the frame is plain
	appendIDs bool  // on every record
}

// goldenClients are those that frames are named after.
var goldenClients = map[string]goldenClient{
	"java":       {records: 3, expected: 41, appendIDs: true},
	"librdkafka": {records: 3, expected: 41, appendIDs: true},
	"kcat":       {records: 1, expected: 41, appendIDs: true},
	"franzgo":    {records: 20, expected: 41},
}

var updateGolden = flag.Bool("update-golden", false, "capture franz-go's golden frames anew")

func TestGoldenFrames(t *testing.T) {
	if *updateGolden {
		captureFranzGo(t)
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "produce-*.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no golden frames in %s", goldenDir)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".bin")
		t.Run(name, func(t *testing.T) {
			frame, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, strings.Split(name, "-"), frame)
		})
	}
}

func checkGolden(t *testing.T, words []string, frame []byte) {
	h, err := ParseRequestHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	if h.APIKey != 0 || h.BodyOffset < 0 || fmt.Sprintf("v%d", h.APIVersion) != words[1] {
		t.Fatalf("header %+v, want that of Produce %s", h, words[1])
	}
	var p Produce
	if err := p.Parse(frame[h.BodyOffset:], h.APIVersion); err != nil {
		t.Fatal(err)
	}
	if len(p.Partitions) == 0 {
		t.Fatal("no partitions")
	}
	client, known := goldenClients[words[2]]
	if !known {
		t.Fatalf("client %q is not in the table", words[2])
	}
	in := NewInspector(HeaderNames{}, EncodingDecimal, testMaxDecompressed)
	for _, partition := range p.Partitions {
		batch, err := ParseBatch(partition.Records)
		if err != nil {
			t.Fatal(err)
		}
		got, err := in.Inspect(batch, partition.Records)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(words, codecNames[batch.Codec()]) && !slices.Contains(words, "transactional") {
			t.Errorf("codec %s, want that of the name", codecNames[batch.Codec()])
		}
		if got, want := batch.Transactional(), slices.Contains(words, "transactional"); got != want {
			t.Errorf("transactional: got %v, want %v", got, want)
		}
		if slices.Contains(words, "plain") {
			if got.Kind != Unconditional {
				t.Errorf("%v, want no condition", got.Kind)
			}
		} else if got.Kind != Conditional || got.Expected != client.expected {
			t.Errorf("%v %d, want a condition on %d", got.Kind, got.Expected, client.expected)
		}
		if got.AllAppendIDs != client.appendIDs {
			t.Errorf("append-ids on all %v, want %v", got.AllAppendIDs, client.appendIDs)
		}
		if batch.NumRecords != client.records || len(got.Digests) != int(client.records) {
			t.Errorf("%d records, %d digests, want %d", batch.NumRecords, len(got.Digests), client.records)
		}
		Stamp(partition.Records, 1, 2, 3, got.MaxTimestamp)
		if _, err := ParseBatch(partition.Records); err != nil {
			t.Errorf("stamped: %v", err)
		}
	}
}

// captureFranzGo lets kgo produce to the embedded broker and keeps the
// Produce requests it writes.
func captureFranzGo(t *testing.T) {
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, version := range []int16{3, 7, 9, 13} {
		for codecName, codec := range codecs {
			if codecName == "zstd" && version < 7 {
				continue
			}
			for _, what := range []string{"plain", "conditional"} {
				if what == "plain" && codecName != "none" {
					continue
				}
				captureOne(t, cluster.ListenAddrs(), version, codec,
					fmt.Sprintf("produce-v%d-franzgo-1.22.3-%s-%s.bin", version, codecName, what), what == "conditional")
			}
		}
	}
}

func captureOne(t *testing.T, brokers []string, version int16, codec kgo.CompressionCodec, file string, conditional bool) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(0, version)
	var tap requestTap
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ClientID("golden"), kgo.MaxVersions(versions),
		kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ManualFlushing(), kgo.MaxBufferedRecords(100), kgo.Dialer(tap.dial),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for partition := range int32(2) {
		for i := range 20 {
			r := &kgo.Record{Topic: "orders", Partition: partition, Key: fmt.Append(nil, "order ", i),
				Value: []byte(strings.Repeat("so many of them, ", 5)), Headers: []kgo.RecordHeader{{Key: "trace", Value: nil}}}
			if conditional {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "expected-offset", Value: fmt.Append(nil, 41+i)})
			}
			client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err := client.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	frames := tap.produceFrames()
	if len(frames) == 0 {
		t.Fatalf("%s: kgo sent no Produce", file)
	}
	if err := os.WriteFile(filepath.Join(goldenDir, file), frames[0], 0o644); err != nil {
		t.Fatal(err)
	}
}

// requestTap keeps what is written to the connections that it dials.
type requestTap struct {
	mu    sync.Mutex
	conns []*tappedConn
}

type tappedConn struct {
	net.Conn
	tap     *requestTap
	written []byte // guarded by tap.mu
}

func (t *requestTap) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tapped := &tappedConn{Conn: conn, tap: t}
	t.conns = append(t.conns, tapped)
	return tapped, nil
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	c.written = append(c.written, b...)
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

// produceFrames returns the Produce requests written, without length bytes.
func (t *requestTap) produceFrames() (frames [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		for rest := c.written; len(rest) >= 4; {
			n := int(binary.BigEndian.Uint32(rest))
			if len(rest) < 4+n {
				break
			}
			if frame := rest[4 : 4+n]; n >= 2 && binary.BigEndian.Uint16(frame) == 0 {
				frames = append(frames, frame)
			}
			rest = rest[4+n:]
		}
	}
	return frames
}
