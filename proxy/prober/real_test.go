//go:build realkafka

package prober

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestRealKafka needs OFFSETPROXY_KAFKA to hold bootstrap addresses, separated
// by commas.
func TestRealKafka(t *testing.T) {
	seeds := os.Getenv("OFFSETPROXY_KAFKA")
	if seeds == "" {
		t.Fatal("OFFSETPROXY_KAFKA is not set")
	}
	c := dialCluster(t, Config{}, strings.Split(seeds, ",")...)
	testLive(t, c)
	ctx := t.Context()
	t.Run("idle state is listed", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		before := time.Now().UnixMilli()
		c.produce(t, topic.Name, stamped(0, "a", "b"))
		c.produce(t, topic.Name, plain("x"))
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !v.HasState || v.LogEnd != 3 || v.LastSequence != 1 || v.LastTimestamp < before {
			t.Errorf("behind a plain record: got %+v", v)
		}
		c.deleteRecords(t, topic.Name, -1)
		if v, err = c.pool.ReadView(ctx, leader, topic, 0); err != nil {
			t.Fatal(err)
		}
		if !v.HasState || v.LastSequence != 1 || v.LogEnd != 3 {
			t.Errorf("after deleting all records: got %+v", v)
		}
	})
	t.Run("old timestamps", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		old := time.Now().Add(-2 * time.Hour).UnixMilli()
		c.produce(t, topic.Name, storedBatch(0, testFence, 0, 0, old, "a"))
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.LastTimestamp != old {
			t.Errorf("got last timestamp %d, want the record's %d", v.LastTimestamp, old)
		}
	})
	t.Run("another producer", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(0, "first"))
		c.produce(t, topic.Name, storedBatch(0, testFence+1, 0, 0, time.Now().UnixMilli(), "other", "again"))
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.LastSequence != 0 || v.LogEnd != 3 {
			t.Errorf("got %+v, want the fence's own sequence", v)
		}
	})
	t.Run("sequence wraps", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(1<<31-2, "a", "b", "c"))
		v, err := c.pool.ReadView(ctx, leader, topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.LastSequence != 0 || v.LogEnd != 3 {
			t.Errorf("got %+v, want last sequence 0", v)
		}
		c.produce(t, topic.Name, stamped(1, "d"))
	})
	// What a broker does to batches on their way in leaves digests alone.
	for _, config := range []struct{ name, value string }{
		{"message.timestamp.type", "LogAppendTime"},
		{"compression.type", "gzip"}, {"compression.type", "snappy"}, {"compression.type", "lz4"}, {"compression.type", "zstd"},
	} {
		t.Run(config.value, func(t *testing.T) {
			values := []string{"a", strings.Repeat("b", 2000), ""}
			read := func(configs map[string]string) Records {
				t.Helper()
				topic, leader := c.topic(t, configs)
				c.produce(t, topic.Name, stamped(0, values...))
				v, err := c.pool.ReadView(ctx, leader, topic, 0)
				if err != nil {
					t.Fatal(err)
				}
				if v.LogEnd != 3 || v.LastSequence != 2 {
					t.Errorf("got view %+v", v)
				}
				got, err := c.pool.ReadRecords(ctx, leader, topic, 0, v.LeaderEpoch, 0, 3)
				if err != nil {
					t.Fatal(err)
				}
				if len(got.Records) != 3 {
					t.Fatalf("got %d records, want 3", len(got.Records))
				}
				return got
			}
			got, want := read(map[string]string{config.name: config.value}), read(nil)
			for i := range want.Records {
				if got.Records[i].Digest != want.Records[i].Digest {
					t.Errorf("record %d: the digest differs", i)
				}
			}
			if got, want := got.Records[0].Batch.LogAppendTime(), config.value == "LogAppendTime"; got != want {
				t.Errorf("got timestamp type LogAppendTime: %v, want %v", got, want)
			}
		})
	}
	t.Run("broker configs", func(t *testing.T) {
		for node := range c.addresses {
			// producer.id.expiration.check.interval.ms is internal to brokers
			// and not told.
			names := []string{"producer.id.expiration.ms", "transactional.id.expiration.ms", "connections.max.idle.ms",
				"min.insync.replicas", "unclean.leader.election.enable"}
			got, err := c.pool.ReadBrokerConfigs(ctx, node, names...)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if got[name] == "" {
					t.Errorf("broker %d does not tell %s", node, name)
				}
			}
		}
	})
	t.Run("view time", func(t *testing.T) {
		topic, leader := c.topic(t, nil)
		c.produce(t, topic.Name, stamped(0, "a"))
		began := time.Now()
		const views = 200
		for range views {
			if _, err := c.pool.ReadView(ctx, leader, topic, 0); err != nil {
				t.Fatal(err)
			}
		}
		viewTime := time.Since(began) / views
		began = time.Now()
		for i := range int32(views) {
			c.produce(t, topic.Name, stamped(1+i, "a"))
		}
		t.Logf("a view takes %v, a produce %v", viewTime, time.Since(began)/views)
	})
}

// TestProbeRealKafka learns what the fence is built on, from brokers.
func TestProbeRealKafka(t *testing.T) {
	seeds := os.Getenv("OFFSETPROXY_KAFKA")
	if seeds == "" {
		t.Fatal("OFFSETPROXY_KAFKA is not set")
	}
	testProbe(t, dialCluster(t, Config{StateFrom: AsProbed}, strings.Split(seeds, ",")...),
		Behaviour{Duplicates: ByLogAppendTime, ListsIdle: true, ArmsAnywhere: true, ChecksSequences: true})
}
