package verify

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/proxy"
)

const runTime = 2 * time.Second

// startCluster runs an embedded cluster and proxies before it that fence the topic
// "fenced", and gives the proxies' addresses and the brokers'.
func startCluster(t *testing.T, proxies int) (addrs, brokers []string) {
	t.Helper()
	cluster, err := embedded.Start(embedded.Config{Brokers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for range proxies {
		p, err := proxy.New(proxy.Config{
			Bootstrap: cluster.Addrs(), Listen: "127.0.0.1:0", BrokerKind: proxy.EmbeddedKfake, Logger: slog.New(slog.DiscardHandler),
			Rules: []proxy.Rule{{Topics: "fenced", Mode: proxy.ModeEnforce}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		select {
		case <-p.Ready():
		case <-t.Context().Done():
			t.Fatal("the proxy does not get ready")
		}
		addrs = append(addrs, p.Addr())
	}
	return addrs, cluster.Addrs()
}

// runAndJudge makes a run and checks what it wrote.
func runAndJudge(t *testing.T, cfg Config) *Verdict {
	t.Helper()
	var file bytes.Buffer
	if err := Run(t.Context(), cfg, &file); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory(&file)
	if err != nil || !h.Complete() {
		t.Fatalf("got error %v", err)
	}
	return Judge(h, time.Minute)
}

// TestARunIsVerified with every habit, through two proxies.
func TestARunIsVerified(t *testing.T) {
	proxies, brokers := startCluster(t, 2)
	v := runAndJudge(t, Config{
		Proxies: proxies, ReadFrom: brokers, Topic: "fenced", Create: true, Partitions: 2, Duration: runTime, Settle: -1, Seed: 1,
	})
	for _, violation := range v.Violations {
		t.Errorf("%s: %v", violation.Kind, violation)
	}
	c := v.Counts
	t.Logf("%+v", c)
	if v.Linearizable != Yes || c.OK == 0 || c.Taken == 0 || c.NotReached == 0 || c.Reads == 0 || c.Records == 0 {
		t.Errorf("linearizable %q, counts %+v", v.Linearizable, c)
	}
	for habit, n := range c.ByHabit {
		if n == 0 {
			t.Errorf("no append had the habit %v", Habit(habit))
		}
	}
}

// TestARunWithoutTheFenceIsNotVerified is its twin: nobody checks the conditions.
func TestARunWithoutTheFenceIsNotVerified(t *testing.T) {
	_, brokers := startCluster(t, 0)
	v := runAndJudge(t, Config{Proxies: brokers, Topic: "plain", Create: true, Partitions: 2, Duration: runTime, Settle: -1, Seed: 1})
	if v.Verified() || v.Linearizable != No || v.Kinds[SuccessMisplaced] == 0 || v.Kinds[Twice] == 0 {
		t.Errorf("verified %v, linearizable %q, %v", v.Verified(), v.Linearizable, v.Kinds)
	}
	var page bytes.Buffer
	if err := v.Draw(&page); err != nil || !strings.Contains(page.String(), "<html") || page.Len() > 1<<20 {
		t.Errorf("a picture of %d bytes, error %v", page.Len(), err)
	}
}

// TestARunThatBeginsLater leaves alone what the topic holds already.
func TestARunThatBeginsLater(t *testing.T) {
	proxies, _ := startCluster(t, 1)
	cfg := Config{Proxies: proxies, Topic: "fenced", Create: true, Partitions: 1, Writers: 2, Duration: runTime / 10, Settle: -1, Seed: 1}
	first := runAndJudge(t, cfg)
	second := runAndJudge(t, cfg)
	if !first.Verified() || !second.Verified() || first.Counts.Records == 0 || second.Counts.Records == 0 {
		t.Errorf("got %v with %d records, then %v with %d", first.Kinds, first.Counts.Records, second.Kinds, second.Counts.Records)
	}
}

// TestARunIsEndedEarly, and what was done is checked all the same.
func TestARunIsEndedEarly(t *testing.T) {
	proxies, _ := startCluster(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), runTime/4)
	defer cancel()
	var file bytes.Buffer
	cfg := Config{Proxies: proxies, Topic: "fenced", Create: true, Partitions: 1, Duration: time.Hour, Settle: -1, Seed: 1}
	if err := Run(ctx, cfg, &file); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory(&file)
	if err != nil || !h.Complete() {
		t.Fatalf("got error %v", err)
	}
	if v := Judge(h, time.Minute); !v.Verified() || v.Counts.OK == 0 {
		t.Errorf("got %v, counts %+v", v.Kinds, v.Counts)
	}
}

func TestRunsThatCannotBe(t *testing.T) {
	proxies, brokers := startCluster(t, 1)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for name, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"no proxies":          {Config{Topic: "fenced"}, ErrConfig},
		"no topic":            {Config{Proxies: proxies}, ErrConfig},
		"too many records":    {Config{Proxies: proxies, Topic: "fenced", MaxRecords: 1000}, ErrConfig},
		"too large a share":   {Config{Proxies: proxies, Topic: "fenced", EndShare: 2}, ErrConfig},
		"no proxy there":      {Config{Proxies: []string{nobody.Addr().String()}, Topic: "fenced", Wait: time.Second}, ErrUnprepared},
		"a topic that is not": {Config{Proxies: proxies, Topic: "nowhere"}, ErrNoTopic},
		"a log that cannot be read": {Config{
			Proxies: proxies, Topic: "fenced", Create: true, ReadFrom: []string{nobody.Addr().String()}, Writers: 1, Duration: time.Millisecond,
			Settle: -1, Wait: 2 * time.Second,
		}, ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Run(t.Context(), c.cfg, new(bytes.Buffer)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("a history that cannot be written", func(t *testing.T) {
		cfg := Config{Proxies: brokers, Topic: "plain", Create: true, Writers: 1, Duration: time.Millisecond, Settle: -1}
		if err := Run(t.Context(), cfg, full{}); !errors.Is(err, errFull) {
			t.Errorf("got %v", err)
		}
	})
}

var errFull = errors.New("the disk is full")

// full cannot be written to.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestARunIsGivenUp when nothing can come of it.
func TestARunIsGivenUp(t *testing.T) {
	s := newStage(t)
	s.then = &unserved
	run := &running{cfg: Config{Proxies: s.proxies, Topic: "t", Writers: 16, Duration: time.Minute, MaxRecords: 1, RequestTimeout: time.Second}}
	run.begins, run.recorder, run.habits, run.began = []Offset{0}, newRecorder(new(bytes.Buffer)), []Habit{Once}, time.Now()
	run.cfg.Progress = new(bytes.Buffer)
	var useless *UselessError
	if _, err := run.write(t.Context()); !errors.As(err, &useless) || useless.Code != 44 || useless.Message != unserved.message {
		t.Errorf("got %v", err)
	}
}
