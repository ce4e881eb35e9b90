package proxy

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// merging carries the pieces of several clients in one request, on a connection of
// its own, once there are so many of them.
type merging struct {
	t        *testing.T
	client   *kafkatest.Client
	openedAt ps.Instant
	size     int
	// fails, if set, is what becomes of them instead.
	fails error
	done  sync.WaitGroup

	mu     sync.Mutex
	pieces []*piece
	parts  []part // of their batches, copied
}

func (m *merging) route() (ps.NodeID, ps.Instant) { return 0, m.openedAt }
func (m *merging) flush() error                   { return nil }
func (m *merging) flushNow() bool                 { return true }
func (m *merging) abandon()                       { _ = m.client.Close() }

func (m *merging) carry(p *piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range p.indexes {
		batch := &p.view.Partitions[i]
		m.parts = append(m.parts, part{topic: string(batch.Topic), partition: batch.Partition, records: bytes.Clone(batch.Records)})
	}
	if m.pieces = append(m.pieces, p); len(m.pieces) == m.size {
		pieces, request := m.pieces, produceOf(9, p.acks, m.parts...)
		m.pieces, m.parts = nil, nil
		m.done.Go(func() { m.send(pieces, request) })
	}
	return nil
}

func (m *merging) send(pieces []*piece, request *kmsg.ProduceRequest) {
	var answer wire.ProduceAnswer
	err := m.fails
	if err == nil {
		m.client.Send(1, request)
		// Behind the correlation id and no tagged fields.
		err = answer.Parse(m.client.Next()[5:], request.Version)
	}
	for _, p := range pieces {
		if err != nil {
			p.lost(err)
		} else {
			p.answered(now(), &answer, nil)
		}
	}
}

// What exchanges send upstream need not travel on their clients' connections, nor
// in requests of their own: all that a carrier owes them is what became of each
// piece.
func TestPiecesOfManyExchangesTravelTogether(t *testing.T) {
	const clients = 3
	for _, c := range []struct {
		name  string
		fails error
		want  func(partition int32) result
	}{
		{"answered", nil, func(int32) result { return result{} }},
		{"not sent", fmt.Errorf("%w: %w", errNotSent, errUpstreamLost), func(int32) result {
			return result{Code: kerr.NotLeaderForPartition.Code, Base: -1, Message: "not appended, send again: unreachable"}
		}},
		{"lost", errUpstreamLost, func(p int32) result {
			return result{Code: -1, Base: -1, Message: "outcome unknown: expected=0 next=0; read the partition from 0"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLeader(t, "fenced")
			r := newFencedRig(t, Config{}, l)
			m := &merging{t: t, client: kafkatest.Dial(t, l.server.Addr()), openedAt: instant(), size: clients, fails: c.fails}
			r.fencing.carry = func(*conn) carrier { return m }
			all := make([]*fencedClient, clients)
			ids := make([]int32, clients)
			for i := range all {
				all[i] = r.dial()
				request := produceOf(9, -1, part{topic: "fenced", partition: int32(i), records: conditional(0, fmt.Sprintf("of client %d", i))})
				request.TimeoutMillis = 200 // what is lost is looked for while it is held
				ids[i] = all[i].send(request)
			}
			for i, client := range all {
				want := c.want(int32(i))
				want.Topic, want.Partition = "fenced", int32(i)
				if got := resultsOf(client.expect(ids[i], 9)); len(got) != 1 || got[0] != want {
					t.Errorf("client %d: got %+v, want %+v", i, got, want)
				}
			}
			m.done.Wait()
			if c.fails != nil {
				return
			}
			if got := len(l.requests()); got != 1 {
				t.Errorf("the broker got %d requests, want one", got)
			}
			for i := range all {
				if got, want := fmt.Sprint(l.values("fenced", i)), fmt.Sprintf("[of client %d]", i); got != want {
					t.Errorf("partition %d has %s, want %s", i, got, want)
				}
			}
		})
	}
}
