package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/wire"
)

// passage is one connection in virtual time, of which the test is both ends.
type passage struct {
	t      *testing.T
	conn   *conn
	client net.Conn
	accept net.Listener // of the broker
	broker net.Conn     // nil before reach
	log    *bytes.Buffer
	ended  chan struct{} // closed when the connection is gone
}

// inPassage runs a test of a passage.
func inPassage(t *testing.T, cfg Config, test func(*passage)) {
	t.Helper()
	inGoTime(t)
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		p := &passage{t: t, log: &bytes.Buffer{}, ended: make(chan struct{})}
		cfg.Bootstrap, cfg.Listen = []string{"127.0.0.1:9092"}, "127.0.0.1:9100"
		cfg.Dial, cfg.Logger = n.dial, slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		proxy, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		proxy.topology.known.Store(&map[int32]broker{4: {node: 4, upstream: "127.0.0.1:9092"}})
		proxy.topology.live.Store(&[]int32{4})
		proxy.markReady()
		if p.accept, err = n.listen("tcp", "127.0.0.1:9092"); err != nil {
			t.Fatal(err)
		}
		clients, err := n.listen("tcp", "127.0.0.1:9100")
		if err != nil {
			t.Fatal(err)
		}
		if p.client, err = n.dial(t.Context(), "tcp", "127.0.0.1:9100"); err != nil {
			t.Fatal(err)
		}
		accepted, err := clients.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p.conn = newConn(proxy, accepted, proxy.topology.entrances[0], unknownNode)
		go func() {
			defer close(p.ended)
			p.conn.serve()
		}()
		defer func() {
			p.conn.abort(errAborted)
			<-p.ended
			_ = p.client.Close()
			if p.broker != nil {
				_ = p.broker.Close()
			}
			_ = p.accept.Close()
			_ = clients.Close()
		}()
		test(p)
	})
}

// send has the client write, and waits until all is as far as it gets.
func (p *passage) send(b []byte) {
	p.t.Helper()
	if _, err := p.client.Write(b); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

// reach waits until the proxy has dialled the broker.
func (p *passage) reach() {
	p.t.Helper()
	var err error
	if p.broker, err = p.accept.Accept(); err != nil {
		p.t.Fatal(err)
	}
}

// arrived reads all that is at the broker now.
func (p *passage) arrived() []byte {
	p.t.Helper()
	if p.broker == nil {
		p.reach()
	}
	return p.read(p.broker)
}

// answered reads all that is at the client now.
func (p *passage) answered() []byte { return p.read(p.client) }

func (p *passage) read(from net.Conn) (all []byte) {
	p.t.Helper()
	synctest.Wait()
	_ = from.SetReadDeadline(time.Now().Add(time.Nanosecond))
	all, _ = io.ReadAll(from)
	_ = from.SetReadDeadline(time.Time{})
	synctest.Wait()
	return all
}

// answer has the broker answer a request of its own number. An answer to Produce has
// to be one.
func (p *passage) answer(id int32, body ...byte) {
	p.t.Helper()
	if _, err := p.broker.Write(kafkatest.AnswerFrame(kafkatest.Request{RequestHeader: wire.RequestHeader{CorrelationID: id}}, body)); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

// wantAnswers compares the correlation ids of what the client has received.
func (p *passage) wantAnswers(want ...int32) {
	p.t.Helper()
	var got []int32
	for b := p.answered(); len(b) >= 8; b = b[4+binary.BigEndian.Uint32(b):] {
		got = append(got, int32(binary.BigEndian.Uint32(b[4:])))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("got answers to %v, want to %v", got, want)
	}
}

// wantClosed waits, for so long at most, until a peer of the proxy sees the end, and
// gives what came before.
func (p *passage) wantClosed(who string, peer net.Conn, within time.Duration) []byte {
	p.t.Helper()
	_ = peer.SetReadDeadline(time.Now().Add(within))
	rest, err := io.ReadAll(peer)
	if err != nil {
		p.t.Errorf("%s after %s: got %v, want the end", who, within, err)
	}
	return rest
}

func (p *passage) wantLog(text string) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Hour):
		p.t.Fatal("the connection does not end")
	}
	if !strings.Contains(p.log.String(), text) {
		p.t.Errorf("not in the log: %q\n%s", text, p.log)
	}
}

// longBytes is the length of the long requests of these tests, about.
const longBytes = 3 * longRequest

// longProduce is a Produce request of longBytes, and where its front ends that the
// tests send first.
func longProduce(id int32, version, acks int16) (frame []byte, cut int) {
	records := make([]byte, longBytes)
	for i := range records {
		records[i] = byte(i * i >> 3)
	}
	frame = kafkatest.RequestFrame(id, produceOf(version, acks, part{topic: "free", id: [16]byte{1}, records: records}))
	return frame, 2 * longRequest
}

func shortRequest(id int32) []byte { return kafkatest.RequestFrame(id, kmsg.NewPtrListGroupsRequest()) }

// numbered is what is left of frames when the proxy has numbered them from id on.
func numbered(id int32, frames ...[]byte) (all []byte) {
	for i, frame := range frames {
		frame = bytes.Clone(frame)
		wire.SetCorrelationID(frame[4:], id+int32(i))
		all = append(all, frame...)
	}
	return all
}

// What has come of a long request is at the broker before the rest has come, as long
// as the proxy needs nothing of the rest.
func TestALongRequestPassesAsItComes(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		for _, acks := range []int16{-1, 0} {
			inPassage(t, Config{}, func(p *passage) {
				long, cut := longProduce(70, version, acks)
				p.send(append(shortRequest(60), long[:cut]...))
				want := numbered(1, shortRequest(60), long)
				got := p.arrived()
				if len(got) < len(want)-len(long)+cut-headBytes {
					t.Fatalf("v%d acks=%d: %d bytes have arrived of %d", version, acks, len(got), len(want)-len(long)+cut)
				}
				p.send(append(long[cut:], shortRequest(80)...))
				got = append(got, p.arrived()...)
				if want = append(want, numbered(3, shortRequest(80))...); !bytes.Equal(got, want) {
					t.Errorf("v%d acks=%d: %d bytes arrived that are not the %d that were sent", version, acks, len(got), len(want))
				}
				p.answer(1)
				if acks != 0 {
					p.answer(2, produceAck(version)...)
				}
				p.answer(3)
				if acks != 0 {
					p.wantAnswers(60, 70, 80)
				} else {
					p.wantAnswers(60, 80)
				}
			})
		}
	}
}

// However what a client sends is cut on the way, the same arrives.
func TestLongRequestsInPiecesArriveUnchanged(t *testing.T) {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.Rack = 12, strings.Repeat("r", longBytes)
	unknown := binary.BigEndian.AppendUint16(kafkatest.Length(8+longBytes), 999)
	unknown = append(append(unknown, 0, 3, 0, 0, 0, 70), make([]byte, longBytes)...)
	long, _ := longProduce(70, 9, -1)
	unanswered, _ := longProduce(70, 13, 0)
	longHead := kmsg.NewRequestFormatter(kmsg.FormatterClientID(strings.Repeat("c", 2*headBytes))).AppendRequest(nil, fetch, 70)
	frames := [][]byte{shortRequest(70), long, unanswered, shortRequest(70), unanswered, long, long, longHead,
		kafkatest.RequestFrame(70, fetch), unknown, shortRequest(70)}
	all := bytes.Join(frames, nil)
	for _, piece := range []int{17, headBytes - 1, inboxBytes, longRequest + 5, 3*longRequest + 77, len(all)} {
		if piece < headBytes && raceEnabled {
			continue // takes long
		}
		inPassage(t, Config{}, func(p *passage) {
			var sending sync.WaitGroup
			sending.Go(func() {
				for rest := all; len(rest) > 0; {
					n := min(piece, len(rest))
					if _, err := p.client.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			})
			p.reach()
			got := make([]byte, len(all))
			if _, err := io.ReadFull(p.broker, got); err != nil {
				t.Fatal(err)
			}
			sending.Wait()
			if !bytes.Equal(got, numbered(1, frames...)) {
				t.Errorf("in pieces of %d bytes something else arrived", piece)
			}
			if p.conn.p.rules.inForce().inWork.Load() != 1+3 {
				t.Errorf("in pieces of %d bytes: %d requests are judged by the rules in force, want 3 that are not answered",
					piece, p.conn.p.rules.inForce().inWork.Load()-1)
			}
		})
	}
}

// What the proxy has to know whole is not sent before it is.
func TestLongRequestsThatConcernTheProxyAreReadWhole(t *testing.T) {
	long, cut := longProduce(70, 9, -1)
	wrongVersion := bytes.Clone(long)
	wrongVersion[7] = 99
	badHead := bytes.Clone(long)
	copy(badHead[12:], []byte{0x80, 0x00}) // the client id's length
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID = strings.Repeat("x", longBytes/2)
	for name, test := range map[string]struct {
		cfg   Config
		frame []byte
	}{
		"a rule for another topic": {Config{Rules: []Rule{{Topics: "other", Mode: ModeObserve}}}, long},
		"a version to come":        {Config{}, wrongVersion},
		"a malformed head":         {Config{}, badHead},
		"partitions of a transaction": {Config{Rules: []Rule{{Topics: "other", Mode: ModeRequire}}},
			kafkatest.RequestFrame(1, add)[:longRequest/2+headBytes]},
	} {
		t.Run(name, func(t *testing.T) {
			inPassage(t, test.cfg, func(p *passage) {
				binary.BigEndian.PutUint32(test.frame, longBytes)
				p.send(shortRequest(60))
				p.arrived()
				p.send(test.frame[:min(cut, len(test.frame))])
				if got := p.arrived(); len(got) != 0 {
					t.Errorf("%d bytes were forwarded", len(got))
				}
			})
		})
	}
}

// A client that dies, stalls or is told to go within a request: what it asked before
// is answered, the broker gets no whole request, and both sides see the end soon.
func TestALongRequestThatDoesNotComeWhole(t *testing.T) {
	const idle, soon = time.Minute, 3 * time.Second
	for name, test := range map[string]struct {
		end    func(p *passage)
		within time.Duration
		log    string
		first  bool // it is the first request
	}{
		"the client closes": {func(p *passage) { _ = p.client.Close() }, soon,
			"client closed the connection within a request, of which 65584 of 196656 bytes had not come", false},
		"the client closes its side": {func(p *passage) { _ = p.client.(*memConn).CloseWrite() }, soon,
			"client closed the connection within a request", false},
		"the client stalls":            {func(*passage) {}, 2 * idle, "idle for too long within a request", false},
		"the proxy drains":             {func(p *passage) { p.conn.closeAfter(errDraining) }, soon, "draining", false},
		"the first request stalls":     {func(*passage) {}, 31 * time.Second, "no whole request within 30s", true},
		"the first request is cut off": {func(p *passage) { _ = p.client.(*memConn).CloseWrite() }, soon, "closed within the first request", true},
	} {
		t.Run(name, func(t *testing.T) {
			inPassage(t, Config{IdleTimeout: idle}, func(p *passage) {
				long, cut := longProduce(70, 9, -1)
				if !test.first {
					p.send(append(shortRequest(60), shortRequest(61)...))
				}
				p.send(long[:cut])
				sent := p.arrived()
				test.end(p)
				synctest.Wait()
				if !test.first {
					// They are answered late, but as long as anybody waits.
					time.Sleep(soon / 2)
					p.answer(1)
					p.answer(2)
				}
				sent = append(sent, p.wantClosed("the broker", p.broker, test.within)...)
				if most := cut + 2*len(shortRequest(0)); len(sent) > most {
					t.Errorf("%d bytes came to the broker, though %d were sent", len(sent), most)
				}
				_ = p.broker.Close()
				if name != "the client closes" {
					if !test.first {
						p.wantAnswers(60, 61)
					}
					p.wantClosed("the client", p.client, test.within)
				}
				p.wantLog(test.log)
				if got := p.conn.p.rules.inForce().inWork.Load(); got != 1 {
					t.Errorf("%d requests are judged by the rules still", got-1)
				}
			})
		})
	}
}

// A broker that dies within a request: what it has answered is passed on, and the
// client sees the end.
func TestABrokerThatDiesWithinALongRequest(t *testing.T) {
	inPassage(t, Config{}, func(p *passage) {
		long, cut := longProduce(70, 9, -1)
		p.send(append(append(shortRequest(60), shortRequest(61)...), long[:cut]...))
		p.arrived()
		p.answer(1)
		_ = p.broker.Close()
		synctest.Wait()
		p.wantAnswers(60)
		if _, err := p.client.Write(long[cut:]); err == nil {
			synctest.Wait()
		}
		p.wantClosed("the client", p.client, 3*time.Second)
		p.wantLog("upstream connection lost")
	})
}

// A broker that answers a request before it has it whole: the answer is passed on
// while more of the request comes; it is none once the request was cut.
func TestAnAnswerToHalfARequest(t *testing.T) {
	t.Run("more comes", func(t *testing.T) {
		inPassage(t, Config{}, func(p *passage) {
			long, cut := longProduce(70, 9, -1)
			p.send(long[:cut])
			p.arrived()
			p.answer(1)
			p.wantAnswers(70)
			p.send(append(long[cut:], shortRequest(80)...))
			p.arrived()
			p.answer(2)
			p.wantAnswers(80)
		})
	})
	t.Run("it was cut", func(t *testing.T) {
		inPassage(t, Config{}, func(p *passage) {
			long, cut := longProduce(70, 9, -1)
			p.send(append(shortRequest(60), long[:cut]...))
			p.arrived()
			p.conn.closeAfter(errDraining)
			synctest.Wait()
			p.answer(1)
			p.answer(2)
			p.wantAnswers(60)
			p.wantClosed("the client", p.client, 3*time.Second)
			p.wantLog("to a request that was sent in part")
		})
	})
}

// A broker that does not read holds the client back; what waits meanwhile is bounded.
func TestABrokerThatDoesNotReadHoldsTheClientBack(t *testing.T) {
	long, _ := longProduce(70, 9, -1)
	for name, frame := range map[string][]byte{"long": long, "short": shortRequest(70)} {
		t.Run(name, func(t *testing.T) {
			inPassage(t, Config{MaxPendingRequests: 1 << 20}, func(p *passage) {
				frames := bytes.Repeat(frame, 10<<20/len(frame))
				var mu sync.Mutex
				taken := 0
				var sending sync.WaitGroup
				defer sending.Wait()
				sending.Go(func() {
					for rest := frames; len(rest) > 0; {
						n, err := p.client.Write(rest[:min(1000, len(rest))])
						if err != nil {
							return
						}
						rest = rest[n:]
						mu.Lock()
						taken += n
						mu.Unlock()
					}
				})
				p.reach()
				synctest.Wait()
				mu.Lock()
				// Two buffers of the network, and one of the connection.
				if most := 2*memPipeBytes + 2*passBytes; taken > most {
					t.Errorf("%d bytes were taken in while the broker reads nothing, want %d at most", taken, most)
				}
				mu.Unlock()
				got := make([]byte, len(frames))
				if _, err := io.ReadFull(p.broker, got); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A Produce that gets no answer is judged by its rules until all of it is written.
func TestALongRequestIsInWorkUntilItIsWritten(t *testing.T) {
	inPassage(t, Config{}, func(p *passage) {
		long, cut := longProduce(70, 9, 0)
		p.send(long[:cut])
		got := len(p.arrived())
		inWork := func() int64 { return p.conn.p.rules.inForce().inWork.Load() - 1 }
		p.send(long[cut : cut+memPipeBytes]) // as much as the broker's side holds
		p.send(long[cut+memPipeBytes:])
		if inWork() != 1 {
			t.Errorf("%d requests are judged by the rules while the end is not written, want 1", inWork())
		}
		got += len(p.arrived())
		if got != len(long) || inWork() != 0 {
			t.Errorf("%d of %d bytes have arrived, %d requests are judged by the rules", got, len(long), inWork())
		}
	})
}

// Half a Produce is forwarded when its topic comes under a rule. What is fenced waits
// until it is answered; without that (the twin) it lands between the view and the
// batch that was stamped by it.
func TestARuleBeginsBehindHalfARequest(t *testing.T) {
	for name, protected := range map[string]bool{"waited for": true, "not waited for": false} {
		t.Run(name, func(t *testing.T) {
			r, l := changingRig(t, ModeOff)
			f := freeze(l)
			close(f.plain)
			before, after := r.dial(), r.dial()
			first := int32(7)
			long := kafkatest.RequestFrame(first, produceOf(9, -1, changed(0, plain(strings.Repeat("a", longBytes)))))
			before.SendBytes(long[:longBytes/2])
			r.awaitTaken(2) // for its answer, and for its rest
			r.change(ModeRequire)
			if !protected {
				r.dontSettle()
			}
			second := after.send(produceOf(9, -1, changed(0, conditional(0, "b"))))
			f.hold(r, protected)
			before.SendBytes(long[longBytes/2:])
			wantResult(t, resultsOf(before.expect(first, 9))[0], 0, 0, "")
			f.wantLater(t, after, second, protected)
		})
	}
}

// The rest of a Produce that comes too late for what waits for it is not forwarded.
func TestARestThatComesLongAfterTheRulesChanged(t *testing.T) {
	for _, acks := range []int16{-1, 0} {
		for name, late := range map[string]bool{"in time": false, "too late": true} {
			t.Run(fmt.Sprintf("acks=%d %s", acks, name), func(t *testing.T) {
				inPassage(t, Config{}, func(p *passage) {
					long, cut := longProduce(70, 9, acks)
					p.send(long[:cut])
					got := len(p.arrived())
					before := p.conn.p.rules.inForce()
					if err := p.conn.p.ChangeRules([]Rule{{Topics: "free", Mode: ModeRequire}}, ModeOff); err != nil {
						t.Fatal(err)
					}
					if before.over() {
						t.Error("what is forwarded in part is not waited for")
					}
					if !late {
						time.Sleep(stragglerMax - 1)
						p.send(long[cut:])
						if got += len(p.arrived()); got != len(long) {
							t.Errorf("%d bytes arrived, want %d", got, len(long))
						}
						if acks != 0 {
							p.answer(1)
						}
					} else {
						time.Sleep(stragglerMax)
						p.send(long[cut : cut+1])
						if rest := p.wantClosed("the broker", p.broker, time.Second); len(rest) != 0 {
							t.Errorf("%d bytes more arrived", len(rest))
						}
						_ = p.broker.Close()
						p.wantLog("a rule has begun or ended on a topic")
					}
					synctest.Wait()
					if !before.over() {
						t.Error("it is waited for on")
					}
				})
			})
		}
	}
}
