package proxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// chaos is a crowd of clients that pipeline requests of every mix over one proxy,
// and leave when they like, before a broker to which another proxy often is faster
// and whose connections end. It notes what was told of each value.
type chaos struct {
	t *testing.T
	l *leader
	r *fencedRig

	mu            sync.Mutex
	told          map[string]chaosTold // by value
	races, resent int
	refused       map[int]bool // clients
	rng           *rand.Rand
}

// untold is the code of a value of which nothing was told.
const untold = -99

type chaosTold struct {
	part      string // topic/partition
	expected  int64  // −1: any
	sequenced bool
	code      int16
	base      int64
	message   string
}

// draw is a number below n.
func (c *chaos) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// race has another proxy append first, to one of a request's partitions.
func (c *chaos) race(r *kmsg.ProduceRequest) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	for _, t := range r.Topics {
		log := c.l.topics[t.Topic]
		if t.Topic != "fenced" {
			continue
		}
		p := log.partitions[t.Partitions[0].Partition]
		c.mu.Lock()
		c.races++
		batch := plain(fmt.Sprintf("theirs-%d", c.races))
		c.mu.Unlock()
		next := p.next
		if !p.has {
			next = int32(p.end)
		}
		wire.Stamp(batch, defaultFenceID, 0, next, time.Now().UnixMilli())
		answer := kmsg.NewProduceResponseTopicPartition()
		p.append(batch, log.appendTime, &answer)
		return
	}
}

func (c *chaos) onProduce(r *kmsg.ProduceRequest) fate {
	if c.draw(3) == 0 {
		c.race(r)
	}
	if c.draw(4) == 0 {
		time.Sleep(time.Duration(c.draw(3000)) * time.Microsecond)
	}
	return [120]fate{fateCutBefore, fateCutAfter, fateCutMid, fateAnswerCut}[c.draw(120)]
}

// client sends requests on one connection after the other.
func (c *chaos) client(id int, until time.Time) {
	n := 0
	producer, sequence := int64(1000+id*100_000), map[int32]int32{}
	var again []unanswered
	for time.Now().Before(until) {
		conn, err := net.Dial("tcp", c.r.Addr())
		if err != nil {
			c.t.Error(err)
			return
		}
		var owed []waiting
		again = c.resend(conn, id, again)
		stay := len(again) == 0
		if !stay {
			_ = conn.Close()
			if again[0].tries > 20 || c.toldOf(again[0].values[0]).code == 45 {
				again, sequence = nil, map[int32]int32{}
				producer++
			}
			continue
		}
		for stay && time.Now().Before(until) {
			n++
			version, acks := int16(9), []int16{-1, -1, -1, 1, 0}[c.draw(5)]
			var parts []part
			w := waiting{}
			for range 1 + c.draw(3) {
				p := part{topic: []string{"fenced", "fenced", "free"}[c.draw(3)], partition: int32(c.draw(4))}
				how := c.draw(4)
				if how == 3 && (p.topic == "free" || acks == 0) {
					how = 2
				}
				same := false
				for _, o := range parts {
					same = same || o.topic == p.topic && o.partition == p.partition
				}
				if same {
					continue
				}
				expected := int64(-1)
				var records []record
				if how == 0 {
					expected = c.l.end("fenced", int(p.partition)) + int64(max(0, c.draw(4)-2))
				}
				var values []string
				for i := range 1 + c.draw(3) {
					v := record{value: fmt.Sprintf("%d/%d/%d/%d", id, n, len(parts), i)}
					switch {
					case how == 0:
						v.expected = strconv.FormatInt(expected+int64(i), 10)
					case how == 1:
						v.expected = "end"
					}
					values, records = append(values, v.value), append(records, v)
				}
				p.records = batchOf(batchOptions{}, records...)
				if how == 3 {
					wire.Stamp(p.records, producer, 0, sequence[p.partition], time.Now().UnixMilli())
					sequence[p.partition] += int32(len(records))
					w.sequenced = append(w.sequenced, unanswered{part: p, values: values})
				}
				c.mu.Lock()
				for i, v := range values {
					e := expected
					if e >= 0 {
						e += int64(i)
					}
					c.told[v] = chaosTold{part: fmt.Sprintf("%s/%d", p.topic, p.partition), expected: e, sequenced: how == 3, code: untold}
				}
				c.mu.Unlock()
				parts, w.values = append(parts, p), append(w.values, values)
			}
			request := produceOf(version, acks, parts...)
			request.TimeoutMillis = 2000
			frame := kafkatest.RequestFrame(int32(n), request)
			if acks != 0 {
				for i := range w.sequenced {
					w.sequenced[i].part.records = bytes.Clone(w.sequenced[i].part.records)
				}
				owed = append(owed, w)
			}
			if c.draw(60) == 0 {
				_, _ = conn.Write(frame[:c.draw(len(frame))])
				break
			}
			if _, err := conn.Write(frame); err != nil {
				break
			}
			if c.draw(60) == 0 {
				break
			}
			for len(owed) > 0 && (len(owed) >= 5 || c.draw(2) == 0) {
				_ = conn.SetReadDeadline(time.Now().Add(seamPatience))
				answer, err := readAnswerFrame(conn)
				if err != nil {
					if e, ok := err.(net.Error); ok && e.Timeout() {
						c.t.Error("no answer")
					}
					stay = false
					break
				}
				c.hear(owed[0].values, answer)
				owed = owed[1:]
			}
		}
		_ = conn.Close()
		for _, w := range owed {
			again = append(again, w.sequenced...)
		}
		if c.lostOne(id) {
			again, sequence = nil, map[int32]int32{}
			producer++
		}
	}
	for len(again) > 0 && again[0].tries < 20 {
		conn, err := net.Dial("tcp", c.r.Addr())
		if err != nil {
			c.t.Error(err)
			return
		}
		again = c.resend(conn, id, again)
		_ = conn.Close()
	}
}

// waiting is a request that is not answered.
type waiting struct {
	values    [][]string
	sequenced []unanswered
}

// unanswered is a batch of an idempotent client, to be sent again.
type unanswered struct {
	part   part
	values []string
	tries  int
}

// resend sends what was not answered, in order, one by one; it gives what is left
// when the connection ends.
func (c *chaos) resend(conn net.Conn, id int, all []unanswered) []unanswered {
	for len(all) > 0 {
		all[0].tries++
		p := all[0].part
		p.records = bytes.Clone(p.records)
		request := produceOf(9, -1, p)
		request.TimeoutMillis = 2000
		if _, err := conn.Write(kafkatest.RequestFrame(1, request)); err != nil {
			return all
		}
		_ = conn.SetReadDeadline(time.Now().Add(seamPatience))
		answer, err := readAnswerFrame(conn)
		if err != nil {
			return all
		}
		c.hear([][]string{all[0].values}, answer)
		switch code := c.toldOf(all[0].values[0]).code; code {
		case 6:
			continue
		case 45:
			return all
		}
		c.mu.Lock()
		c.resent++
		c.mu.Unlock()
		all = all[1:]
	}
	return nil
}

func (c *chaos) toldOf(value string) chaosTold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[value]
}

// lostOne reports whether a client was told, since it was asked last, that a
// batch of its sequence was not appended.
func (c *chaos) lostOne(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.refused[id]
	delete(c.refused, id)
	return lost
}

func (c *chaos) hear(values [][]string, answer *kmsg.ProduceResponse) {
	results := resultsOf(answer)
	if len(results) != len(values) {
		c.t.Errorf("got %d results, want %d", len(results), len(values))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range results {
		for j, v := range values[i] {
			told := c.told[v]
			if got := fmt.Sprintf("%s/%d", r.Topic, r.Partition); got != told.part {
				c.t.Errorf("answer for %s where %s is due", got, told.part)
			}
			if r.Code != 0 && told.sequenced {
				client, _, _ := strings.Cut(v, "/")
				id, _ := strconv.Atoi(client)
				c.refused[id] = true
			}
			told.code, told.base, told.message = r.Code, r.Base+int64(j), r.Message
			c.told[v] = told
		}
	}
}

// runChaos gives all that is wrong in the end.
func runChaos(t *testing.T, cfg Config, d time.Duration) []string {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	l := newLeader(t, "fenced", "free")
	l.lenient = true
	c := &chaos{t: t, l: l, told: map[string]chaosTold{}, refused: map[int]bool{}, rng: rand.New(rand.NewPCG(seed, 1))}
	cfg.Rules = []Rule{{Topics: "fenced", Mode: ModeEnforce}}
	c.r = startRuled(t, withBootstrap(cfg, l))
	l.hook(c.onProduce)
	until := time.Now().Add(d)
	var group sync.WaitGroup
	for id := range 12 {
		group.Go(func() { c.client(id, until) })
	}
	group.Wait()
	c.r.awaitQuiet()
	t.Logf("seed %d: %d values, %d races, %d resent, %d requests", seed, len(c.told), c.races, c.resent, len(l.requests()))
	return c.check()
}

func withBootstrap(cfg Config, l *leader) Config {
	cfg.Bootstrap = []string{l.server.Addr()}
	return cfg
}

// check holds the logs against what was told.
func (c *chaos) check() (wrong []string) {
	where := map[string][]string{}
	for _, topic := range []string{"fenced", "free"} {
		for p := range 4 {
			for at, v := range c.l.values(topic, p) {
				where[v] = append(where[v], fmt.Sprintf("%s/%d@%d", topic, p, at))
			}
		}
	}
	codes := map[int16]int{}
	for v, told := range c.told {
		codes[told.code]++
		at := where[v]
		fenced := strings.HasPrefix(told.part, "fenced")
		switch want := fmt.Sprintf("%s@%d", told.part, told.base); {
		case len(at) > 1:
			wrong = append(wrong, fmt.Sprintf("%s lies at %v", v, at))
		case told.code == 0 && (len(at) != 1 || at[0] != want):
			wrong = append(wrong, fmt.Sprintf("%s told %s, lies at %v", v, want, at))
		case fenced && told.expected >= 0 && len(at) == 1 && at[0] != fmt.Sprintf("%s@%d", told.part, told.expected):
			wrong = append(wrong, fmt.Sprintf("%s expected %d, lies at %v", v, told.expected, at))
		case fenced && told.code > 0 && len(at) != 0:
			wrong = append(wrong, fmt.Sprintf("%s told %d %q, lies at %v", v, told.code, told.message, at))
		}
	}
	c.t.Logf("codes %v", codes)
	return wrong
}

// TestChaos: whatever is mixed, pipelined, raced for, cut and sent again, each
// record is where its writer was told, or nowhere, and never twice.
func TestChaos(t *testing.T) {
	wrong := runChaos(t, Config{}, 3*time.Second)
	for _, w := range wrong[:min(10, len(wrong))] {
		t.Error(w)
	}
}

// TestChaosWithoutTheFence is its twin.
func TestChaosWithoutTheFence(t *testing.T) {
	if wrong := runChaos(t, Config{Unsafe: true}, time.Second); len(wrong) == 0 {
		t.Error("nothing goes wrong without the fence")
	}
}
