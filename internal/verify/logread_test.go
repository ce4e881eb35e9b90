package verify

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// newStaleBroker holds these records in partition 0 of the topic "t", and says as often
// as told that it ends behind the first of them.
func newStaleBroker(t *testing.T, stale int32, records ...*kgo.Record) (cfg Config, asked *atomic.Int32) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int32)
	cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := r.(*kmsg.ListOffsetsRequest)
		if len(request.Topics) == 0 || request.Topics[0].Partitions[0].Timestamp != -1 || asked.Add(1) > stale {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = "t"
		partition := kmsg.NewListOffsetsResponseTopicPartition()
		partition.Offset = 1
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	return Config{Proxies: cluster.ListenAddrs(), ReadFrom: cluster.ListenAddrs(), Topic: "t", Wait: time.Minute, Patience: time.Minute}, asked
}

// sentRecord is a record as a writer of the run "r" sends it.
func sentRecord(id RecordID, expected string) *kgo.Record {
	return &kgo.Record{
		Value:   appendName(nil, "r", id),
		Headers: []kgo.RecordHeader{{Key: appender.HeaderExpectedOffset, Value: []byte(expected)}},
	}
}

// TestAStaleEndIsAskedForAgain: a broker that lags tells less than was acknowledged,
// and what lies behind that is not missing.
func TestAStaleEndIsAskedForAgain(t *testing.T) {
	const never = 1 << 30
	for name, c := range map[string]struct {
		stale    int32
		told     Offset
		patience time.Duration
		want     int
		asked    int32
	}{
		"it learns better":              {2, 3, time.Minute, 3, 3},
		"nobody was told of more":       {never, 1, time.Minute, 1, 1},
		"it does not, so they are lost": {never, 3, 10 * time.Millisecond, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var records []*kgo.Record
			for place := range uint16(3) {
				records = append(records, sentRecord(RecordID{AppendID{0, 0}, place}, "end"))
			}
			cfg, asked := newStaleBroker(t, c.stale, records...)
			cfg.Patience = c.patience
			logs, err := readLogs(t.Context(), &cfg, "r", []Offset{0}, []Offset{c.told})
			if err != nil {
				t.Fatal(err)
			}
			if got := logs[0]; len(got.Records) != c.want || !got.Read || asked.Load() != c.asked {
				t.Errorf("got %d records, read %v, asked %d times; want %d, and %d times", len(got.Records), got.Read, asked.Load(), c.want, c.asked)
			}
		})
	}
}

// TestAlteredRecordsAreSeen by their keys and headers, whatever their value.
func TestAlteredRecordsAreSeen(t *testing.T) {
	type change func(r *kgo.Record)
	header := func(name, value string) change {
		return func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)}) }
	}
	cases := []struct {
		name   string
		change change
		want   bool
	}{
		{"as sent", func(*kgo.Record) {}, false},
		{"with an append-id", func(r *kgo.Record) { header(appender.HeaderAppendID, string(r.Value))(r) }, false},
		{"with a key", func(r *kgo.Record) { r.Key = []byte("k") }, true},
		{"with a header more", header("x", "y"), true},
		{"with another append-id", header(appender.HeaderAppendID, "verify/r/0/0/9"), true},
		{"without headers", func(r *kgo.Record) { r.Headers = nil }, true},
		{"with another condition", func(r *kgo.Record) { r.Headers[0].Value = []byte("first") }, true},
	}
	var records []*kgo.Record
	for i, c := range cases {
		records = append(records, sentRecord(RecordID{AppendID{0, 0}, uint16(i)}, "7"))
		c.change(records[i])
	}
	cfg, _ := newStaleBroker(t, 0, records...)
	logs, err := readLogs(t.Context(), &cfg, "r", []Offset{0}, []Offset{0})
	if err != nil || len(logs[0].Records) != len(cases) {
		t.Fatalf("got %+v, %v", logs, err)
	}
	for i, c := range cases {
		if got := logs[0].Records[i]; !got.Known || got.Altered != c.want {
			t.Errorf("%s: got %+v, want altered %v", c.name, got, c.want)
		}
	}
}
