package race

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "places"

func cluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func config(c *kfake.Cluster, writers int) Config {
	return Config{
		Proxies: [][]string{c.ListenAddrs()}, Topic: topic, Writers: writers,
		Duration: 200 * time.Millisecond, Value: "test",
	}
}

func checked(t *testing.T, c *kfake.Cluster, writers int) *Result {
	t.Helper()
	attempts, err := Run(t.Context(), config(c, writers))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	log, err := ReadLog(ctx, c.ListenAddrs(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Check(attempts, log)
}

// Straight at a broker nothing checks the condition: alone a writer cannot
// notice, two of them must.
func TestRaceWithoutAFence(t *testing.T) {
	if r := checked(t, cluster(t), 1); r.Won == 0 || r.Won != r.Records || len(r.Violations) != 0 {
		t.Errorf("one writer: got %+v", r)
	}
	if r := checked(t, cluster(t), 4); r.Count(Misplaced) == 0 {
		t.Errorf("four writers: got %+v, want misplaced successes", r)
	}
}

// answering scripts every answer to a Produce.
func answering(c *kfake.Cluster, code int16, err error) {
	c.ControlKey(0, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topic
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode, rp.BaseOffset = code, -1
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, err, true
	})
}

func TestRaceEnds(t *testing.T) {
	t.Run("at an error that stays", func(t *testing.T) {
		c := cluster(t)
		answering(c, 44, nil)
		attempts, err := Run(t.Context(), config(c, 2))
		var answered *appender.BrokerError
		if !errors.As(err, &answered) || answered.Code != 44 || len(attempts) == 0 {
			t.Errorf("got error %v after %d attempts, want the answer", err, len(attempts))
		}
	})
	t.Run("not at an error that passes", func(t *testing.T) {
		c := cluster(t)
		answering(c, 6, nil)
		attempts, err := Run(t.Context(), config(c, 2))
		if r := Check(attempts, nil); err != nil || r.NotSent == 0 || r.NotSent != r.Attempts {
			t.Errorf("got error %v, %+v", err, r)
		}
	})
	t.Run("not at connections that are cut", func(t *testing.T) {
		c := cluster(t)
		answering(c, 0, errors.New("cut"))
		attempts, err := Run(t.Context(), config(c, 2))
		if r := Check(attempts, nil); err != nil || r.Unknown == 0 || r.Unknown != r.Attempts {
			t.Errorf("got error %v, %+v", err, r)
		}
	})
	t.Run("with its context", func(t *testing.T) {
		c := cluster(t)
		cfg := config(c, 2)
		cfg.Duration = time.Hour
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		c.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
			cancel(why)
			return nil, nil, false
		})
		if _, err := Run(ctx, cfg); !errors.Is(err, why) {
			t.Errorf("got error %v, want the context's cause", err)
		}
	})
}
