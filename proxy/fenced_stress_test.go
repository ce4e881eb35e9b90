package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/appender"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/internal/race"
)

const (
	stressPartitions = 20
	stressWriters    = 200
)

// stress is a crowd of writers that race for the places of 20 partitions,
// through two proxies, and hang up whenever they like.
type stress struct {
	addresses []string
	// hints are the next offsets as far as the writers have heard.
	hints [stressPartitions]atomic.Int64

	mu       sync.Mutex
	attempts [stressPartitions][]race.Attempt
}

func (s *stress) tell(partition int, values []string, expected int64, outcome race.Outcome, base int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range values {
		a := race.Attempt{Value: v, Expected: appender.Offset(expected + int64(i)), Outcome: outcome, Answered: appender.NoOffset}
		if outcome == race.Won {
			a.Answered = appender.Offset(base + int64(i))
		}
		s.attempts[partition] = append(s.attempts[partition], a)
	}
}

// writer makes attempts, some pipelined, until the time is over.
func (s *stress) writer(t *testing.T, id int, until time.Time) {
	random := rand.New(rand.NewPCG(uint64(id), 7))
	for attempt := 0; time.Now().Before(until); {
		conn, err := dialAbruptly(context.Background(), "tcp", s.addresses[id%len(s.addresses)])
		if err != nil {
			t.Errorf("dial: %v", err)
			return
		}
		for stay := true; stay && time.Now().Before(until); {
			stay = s.request(t, conn, random, fmt.Sprintf("%d/%d", id, attempt))
			attempt++
		}
		_ = conn.Close()
	}
}

// sentPart is a part of a request and its writer's expectation.
type sentPart struct {
	partition int
	expected  int64
	values    []string
}

// request races for places in up to three partitions at once; false: the
// writer has hung up.
func (s *stress) request(t *testing.T, conn net.Conn, random *rand.Rand, name string) bool {
	var sent []sentPart
	var parts []part
	for _, p := range random.Perm(stressPartitions)[:1+random.IntN(3)] {
		one := sentPart{partition: p, expected: s.hints[p].Load() + int64(max(0, random.IntN(8)-6))}
		var records []record
		withID := random.IntN(2) == 0
		for i := range 1 + random.IntN(3) {
			r := record{value: fmt.Sprintf("%s/%d/%d", name, p, i), expected: strconv.FormatInt(one.expected+int64(i), 10)}
			if withID {
				r.appendID = r.value
			}
			one.values, records = append(one.values, r.value), append(records, r)
		}
		sent = append(sent, one)
		parts = append(parts, part{topic: "fenced", partition: int32(p), records: batchOf(batchOptions{}, records...)})
	}
	unknown := func() bool {
		for _, one := range sent {
			s.tell(one.partition, one.values, one.expected, race.Unknown, -1)
		}
		return false
	}
	frame := kafkatest.RequestFrame(1, produceOf(9, 1, parts...))
	switch random.IntN(40) {
	case 0: // within the request
		_, _ = conn.Write(frame[:random.IntN(len(frame))])
		return unknown()
	case 1: // behind it
		_, _ = conn.Write(frame)
		return unknown()
	case 2: // a little later
		_, _ = conn.Write(frame)
		_ = conn.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(20)) * time.Millisecond))
		_, _ = io.ReadFull(conn, make([]byte, 1))
		return unknown()
	}
	_ = conn.SetDeadline(time.Now().Add(seamPatience))
	if _, err := conn.Write(frame); err != nil {
		return unknown()
	}
	answer, err := readAnswerFrame(conn)
	if err != nil {
		return unknown()
	}
	results := resultsOf(answer)
	if len(results) != len(sent) {
		t.Errorf("got %d results, want %d", len(results), len(sent))
		return unknown()
	}
	for i, one := range sent {
		s.judge(t, one, results[i])
	}
	return true
}

func readAnswerFrame(conn net.Conn) (*kmsg.ProduceResponse, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil, err
	}
	a := kmsg.NewPtrProduceResponse()
	a.Version = 9
	return a, a.ReadFrom(body[5:])
}

// judge notes what a writer was told, and learns from it.
func (s *stress) judge(t *testing.T, one sentPart, got result) {
	hint := &s.hints[one.partition]
	switch got.Code {
	case 0:
		s.tell(one.partition, one.values, one.expected, race.Won, got.Base)
		raise(hint, got.Base+int64(len(one.values)))
	case 1:
		s.tell(one.partition, one.values, one.expected, race.Refused, -1)
		var expected, next int64
		if _, err := fmt.Sscanf(got.Message, "expected-offset taken: expected=%d next=%d", &expected, &next); err == nil {
			raise(hint, next)
		}
	case -1:
		s.tell(one.partition, one.values, one.expected, race.Unknown, -1)
	case 6:
		s.tell(one.partition, one.values, one.expected, race.NotSent, -1)
	default:
		t.Errorf("got code %d %q", got.Code, got.Message)
	}
}

func raise(hint *atomic.Int64, to int64) {
	for {
		now := hint.Load()
		if now >= to || hint.CompareAndSwap(now, to) {
			return
		}
	}
}

// run has the writers race, and checks what they were told against the log.
func (s *stress) run(t *testing.T, bootstrap []string, length time.Duration) (won, violations int) {
	var writers sync.WaitGroup
	until := time.Now().Add(length)
	for id := range stressWriters {
		writers.Go(func() { s.writer(t, id, until) })
	}
	writers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var told [4]int
	for p := range s.attempts {
		log, err := race.ReadLog(ctx, bootstrap, "fenced", appender.Partition(p))
		if err != nil {
			t.Fatal(err)
		}
		found := race.Check(s.attempts[p], log)
		for i, n := range []int{found.Won, found.Refused, found.Unknown, found.NotSent} {
			told[i] += n
		}
		violations += len(found.Violations)
		for i, v := range found.Violations {
			if i < 3 {
				t.Logf("partition %d: %s: %s", p, v.Fault, v)
			}
		}
	}
	t.Logf("won %d, refused %d, unknown %d, not sent %d", told[0], told[1], told[2], told[3])
	return told[0], violations
}

// beforeOneKfake runs two proxies before an embedded broker.
func beforeOneKfake(t *testing.T, cfg Config) (proxies []*fencedRig, s *stress, bootstrap []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(stressPartitions, "fenced"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s = &stress{}
	cfg.Bootstrap, cfg.BrokerKind, cfg.Dial = cluster.ListenAddrs(), EmbeddedKfake, dialAbruptly
	for range 2 {
		r := startFenced(t, cfg)
		proxies = append(proxies, r)
		s.addresses = append(s.addresses, r.Addr())
	}
	return proxies, s, cluster.ListenAddrs()
}

func TestStress(t *testing.T) {
	length := 10 * time.Second
	if testing.Short() {
		length = 2 * time.Second
	}
	proxies, s, bootstrap := beforeOneKfake(t, Config{})
	won, violations := s.run(t, bootstrap, length)
	if violations > 0 {
		t.Errorf("got %d violations, want none", violations)
	}
	if won < stressPartitions {
		t.Errorf("got %d won, want more: the test shows nothing", won)
	}
	for i, r := range proxies {
		r.awaitQuiet()
		await(t, "connections are gone", func() bool { return r.metrics.open.Load() == 0 })
		if got := r.outcomes(outcomeViolation); got != 0 {
			t.Errorf("proxy %d: got %d violations counted, want none", i, got)
		}
	}
}

// The twin: with the fence off the same crowd finds records elsewhere than
// they were promised.
func TestStressWithoutTheFenceFindsViolations(t *testing.T) {
	_, s, bootstrap := beforeOneKfake(t, Config{Unsafe: true})
	for range 5 {
		if _, violations := s.run(t, bootstrap, time.Second); violations > 0 {
			return
		}
	}
	t.Error("got no violation: the check shows nothing")
}
