package prober

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// steadyLeader answers every view read in one round.
func steadyLeader() *leader { return &leader{epoch: 5, ends: []int64{42}, high: 42} }

// Where the connection is cut decides what a view read gets; the next one
// dials anew in every case.
func TestConnectionCut(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   int // of the round's four requests
		fate fate
		ok   bool
	}{
		{"before the first answer", 0, cutBefore, false},
		{"inside the first answer", 0, cutMid, false},
		{"behind the first answer", 0, cutAfter, false},
		{"inside the last answer", 3, cutMid, false},
		{"behind the last answer", 3, cutAfter, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := steadyLeader()
			requests := 0
			b := &scriptedBroker{handle: func(r kmsg.Request) reply {
				do := l.handle(r)
				if requests == 1+tc.at { // Metadata comes first
					do.fate = tc.fate
				}
				requests++
				return do
			}}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				_, err := p.ReadView(ctx, testNode, testTopic, 0)
				if tc.ok && err != nil || !tc.ok && !errors.Is(err, ErrUnreachable) {
					t.Errorf("got %v, want success: %v, else ErrUnreachable", err, tc.ok)
				}
				synctest.Wait() // the cut is noticed
				if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
					t.Errorf("after the cut: %v", err)
				}
				if got, want := b.dialled(), 2; got != want {
					t.Errorf("got %d dials, want %d", got, want)
				}
			})
		})
	}
}

func TestRequestTimeout(t *testing.T) {
	for _, tc := range []struct {
		name string
		late time.Duration
		fate fate
		want time.Duration // when the call ends
		ok   bool
	}{
		{"late but in time", 4999 * time.Millisecond, answered, 4999 * time.Millisecond, true},
		{"too late", 6 * time.Second, answered, 5 * time.Second, false},
		{"never", 0, unanswered, 5 * time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := steadyLeader()
			first := true
			b := &scriptedBroker{handle: func(r kmsg.Request) reply {
				do := l.handle(r)
				if r.Key() == int16(kmsg.DescribeProducers) && first {
					first = false
					do.late, do.fate = tc.late, tc.fate
				}
				return do
			}}
			run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
				began := time.Now()
				_, err := p.ReadView(ctx, testNode, testTopic, 0)
				if tc.ok && err != nil || !tc.ok && (!errors.Is(err, ErrUnreachable) || !errors.Is(err, os.ErrDeadlineExceeded)) {
					t.Errorf("got %v, want success: %v, else ErrUnreachable by deadline", err, tc.ok)
				}
				if got := time.Since(began); got != tc.want {
					t.Errorf("ended after %v, want %v", got, tc.want)
				}
				if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
					t.Errorf("afterwards: %v", err)
				}
				time.Sleep(time.Hour) // an idle connection has no deadline
				before := b.dialled()
				if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
					t.Errorf("after an hour: %v", err)
				}
				if got := b.dialled(); got != before {
					t.Errorf("the idle connection was lost: %d dials, had %d", got, before)
				}
			})
		})
	}
}

// A broker that reads nothing holds a call up no longer than one that does
// not answer.
func TestWriteTimeout(t *testing.T) {
	var mu sync.Mutex
	var far []net.Conn
	dial := func(context.Context, int32) (net.Conn, error) {
		near, f := net.Pipe()
		mu.Lock()
		far = append(far, f)
		mu.Unlock()
		return near, nil
	}
	run(t, Config{Dial: dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		began := time.Now()
		if _, err := p.ReadTopic(ctx, testNode, "orders"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		if got, want := time.Since(began), 5*time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
		for _, f := range far {
			f.Close()
		}
	})
}

// A caller that gives up leaves the connection usable: its late answers are
// dropped and the next call gets its own.
func TestContextEndsMidCall(t *testing.T) {
	l := steadyLeader()
	first := true
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		if r.Key() == int16(kmsg.DescribeProducers) && first {
			first = false
			do.late = 2 * time.Second
		}
		return do
	}}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began := time.Now()
		if _, err := p.ReadView(impatient, testNode, testTopic, 0); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v, want the context's cause alone", err)
		}
		if got, want := time.Since(began), time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
		b.change(func() { l.high = 77 })
		v, err := p.ReadView(ctx, testNode, testTopic, 1)
		if err != nil {
			t.Fatal(err)
		}
		if v.HighWatermark != 77 {
			t.Errorf("got high watermark %d, want 77", v.HighWatermark)
		}
		if got, want := b.dialled(), 1; got != want {
			t.Errorf("got %d dials, want %d", got, want)
		}
	})
}

// An abandoned call that is never answered does not leave a dead connection
// for the next caller to wait on.
func TestAbandonedCallStillTimesOut(t *testing.T) {
	l := steadyLeader()
	first := true
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		if r.Key() == int16(kmsg.DescribeProducers) && first {
			first = false
			do.fate = unanswered
		}
		return do
	}}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := p.ReadView(impatient, testNode, testTopic, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's cause", err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		began := time.Now()
		if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("waited %v for the dead connection", got)
		}
	})
}

func TestContextEndedBefore(t *testing.T) {
	b := &scriptedBroker{handle: steadyLeader().handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := p.ReadView(ended, testNode, testTopic, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's cause", err)
		}
		if got := b.dialled(); got != 0 {
			t.Errorf("got %d dials, want none", got)
		}
	})
}

// Concurrent view reads share the connection, and each round stays together.
func TestConcurrentViewsStayContiguous(t *testing.T) {
	l := steadyLeader()
	b := &scriptedBroker{handle: l.handle}
	run(t, Config{Dial: b.dial, MaxInFlight: 3}, func(t *testing.T, ctx context.Context, p *Pool) {
		var readers sync.WaitGroup
		for partition := range int32(4) {
			for range 5 {
				readers.Go(func() {
					if _, err := p.ReadView(ctx, testNode, testTopic, partition); err != nil {
						t.Error(err)
					}
				})
			}
		}
		readers.Wait()
		if got, want := b.dialled(), 1; got != want {
			t.Errorf("got %d dials, want %d", got, want)
		}
		requests := b.seen()
		rounds := 0
		for i := 0; i < len(requests); {
			if requests[i].Key() == int16(kmsg.Metadata) {
				i++
				continue
			}
			if len(requests) < i+4 {
				t.Fatalf("%d requests are left for a round", len(requests)-i)
			}
			first := requests[i].(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0].Partition
			described := requests[i+1].(*kmsg.DescribeProducersRequest).Topics[0].Partitions[0]
			second := requests[i+2].(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0].Partition
			listed := requests[i+3].(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Partition
			if first != described || first != second || first != listed {
				t.Errorf("a round mixes partitions %d, %d, %d, %d", first, described, second, listed)
			}
			rounds++
			i += 4
		}
		if rounds != 20 {
			t.Errorf("got %d rounds, want 20", rounds)
		}
	})
}

// askAlone asks for a topic by a request that is shared with nobody.
func askAlone(ctx context.Context, p *Pool, name string) error {
	c, err := p.connection(ctx, testNode)
	if err == nil {
		_, err = c.readTopic(ctx, Topic{Name: name})
	}
	return err
}

func TestMaxWaiting(t *testing.T) {
	l := steadyLeader()
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		do.late = time.Second
		return do
	}}
	run(t, Config{Dial: b.dial, MaxWaiting: 3, MaxInFlight: 2}, func(t *testing.T, ctx context.Context, p *Pool) {
		var readers sync.WaitGroup
		var mu sync.Mutex
		busy, done := 0, 0
		for range 5 {
			readers.Go(func() {
				err := askAlone(ctx, p, "orders")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
				case errors.Is(err, ErrBusy):
					busy++
				default:
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if done != 3 || busy != 2 {
			t.Errorf("got %d done and %d busy, want 3 and 2", done, busy)
		}
		if _, err := p.ReadTopic(ctx, testNode, "orders"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A broker that has much to do answers late, but goes on answering: only silence
// counts as its end.
func TestBrokerThatIsBehindIsWaitedFor(t *testing.T) {
	l := steadyLeader()
	asked := 0
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		do.late = time.Second
		if asked++; asked > 30 {
			do.fate = unanswered
		}
		return do
	}}
	run(t, Config{Dial: b.dial, RequestTimeout: 5 * time.Second}, func(t *testing.T, ctx context.Context, p *Pool) {
		began := time.Now()
		var calls sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		for range 40 {
			calls.Go(func() {
				if err := askAlone(ctx, p, "orders"); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			})
		}
		calls.Wait()
		if failed != 10 {
			t.Errorf("got %d calls failed, want the 10 that were not answered", failed)
		}
		if got, want := time.Since(began), 35*time.Second; got != want {
			t.Errorf("it took %v to notice, want %v", got, want)
		}
	})
}

// heldConn is a connection whose writes wait until gate, of capacity 1, has
// room.
type heldConn struct {
	net.Conn
	gate chan struct{}
}

func (c heldConn) Write(p []byte) (int, error) {
	c.gate <- struct{}{}
	defer func() { <-c.gate }()
	return c.Conn.Write(p)
}

// Requests given up before they are written never are, and leave their place
// on the wire to others.
func TestAbandonedBeforeWriting(t *testing.T) {
	l := steadyLeader()
	b := &scriptedBroker{handle: l.handle}
	var gate chan struct{}
	dial := func(ctx context.Context, node int32) (net.Conn, error) {
		nc, err := b.dial(ctx, node)
		return heldConn{nc, gate}, err
	}
	run(t, Config{Dial: dial, MaxInFlight: 2}, func(t *testing.T, ctx context.Context, p *Pool) {
		gate = make(chan struct{}, 1) // of this bubble
		read := func(ctx context.Context, name string) error { return askAlone(ctx, p, name) }
		if err := read(ctx, "first"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			gate <- struct{}{}
			var calls sync.WaitGroup
			calls.Go(func() {
				if err := read(ctx, "held"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			impatient, cancel := context.WithTimeout(ctx, time.Second)
			if err := read(impatient, "abandoned"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the context's cause", err)
			}
			cancel()
			<-gate
			calls.Wait()
		}
		synctest.Wait()
		c, err := p.connection(ctx, testNode)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(c.tokens); got != 0 {
			t.Errorf("%d places are taken by nobody", got)
		}
		for _, r := range b.seen() {
			if name := *r.(*kmsg.MetadataRequest).Topics[0].Topic; name == "abandoned" {
				t.Error("an abandoned request was written")
			}
		}
	})
}

// Only the call whose answer is too large is told that it is; the others on the
// connection may succeed on the next.
func TestAnswerAboveTheLimit(t *testing.T) {
	l := &leader{epoch: 5, ends: []int64{1}, high: 1}
	b := &scriptedBroker{handle: func(r kmsg.Request) reply {
		do := l.handle(r)
		if _, ok := r.(*kmsg.FetchRequest); ok {
			do = reply{raw: make([]byte, 1<<20)}
		}
		do.late = time.Second
		return do
	}}
	run(t, Config{Dial: b.dial, MaxFrame: 1 << 16}, func(t *testing.T, ctx context.Context, p *Pool) {
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := p.ReadRecords(ctx, testNode, testTopic, 0, 5, 0, 1); !errors.Is(err, ErrAnswerTooLarge) || !errors.Is(err, ErrUnreachable) {
				t.Errorf("got %v, want ErrAnswerTooLarge and ErrUnreachable", err)
			}
		})
		synctest.Wait()
		calls.Go(func() {
			if err := askAlone(ctx, p, "orders"); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrAnswerTooLarge) {
				t.Errorf("behind it: got %v, want ErrUnreachable alone", err)
			}
		})
		calls.Wait()
		if err := askAlone(ctx, p, "orders"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestBrokenAnswers(t *testing.T) {
	huge := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0, 0}, 1<<31-1)
	for _, tc := range []struct {
		name string
		do   reply
	}{
		{"another correlation id", reply{raw: []byte{0}, wrong: 1}},
		{"nothing after the correlation id", reply{}},
		{"header tags beyond the frame", reply{raw: []byte{1, 0, 100}}},
		{"more header tags than any frame holds", reply{raw: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}}},
		{"an array longer than the frame", reply{raw: huge}},
		{"no topics", reply{resp: kmsg.NewPtrMetadataResponse()}},
		{"a frame above the limit", reply{raw: make([]byte, 1<<20)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &scriptedBroker{handle: func(kmsg.Request) reply { return tc.do }}
			run(t, Config{Dial: b.dial, MaxFrame: 1 << 16}, func(t *testing.T, ctx context.Context, p *Pool) {
				for range 2 {
					if _, err := p.ReadTopic(ctx, testNode, "orders"); !errors.Is(err, ErrUnreachable) || !errors.Is(err, errMalformed) {
						t.Errorf("got %v, want ErrUnreachable for a malformed answer", err)
					}
				}
				if got, want := b.dialled(), 2; got != want {
					t.Errorf("got %d dials, want %d", got, want)
				}
			})
		})
	}
}

// All callers of a dial share its failure; the next one tries again.
func TestDialFails(t *testing.T) {
	l := steadyLeader()
	b := &scriptedBroker{handle: l.handle}
	refusal := errors.New("refused")
	dials := 0
	dial := func(ctx context.Context, node int32) (net.Conn, error) {
		if dials++; dials == 1 {
			time.Sleep(time.Second)
			return nil, refusal
		}
		return b.dial(ctx, node)
	}
	run(t, Config{Dial: dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				if _, err := p.ReadView(ctx, testNode, testTopic, 0); !errors.Is(err, ErrUnreachable) || !errors.Is(err, refusal) {
					t.Errorf("got %v, want ErrUnreachable with the dial's error", err)
				}
			})
		}
		readers.Wait()
		if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
			t.Errorf("the next call: %v", err)
		}
		if dials != 2 {
			t.Errorf("got %d dials, want 2", dials)
		}
	})
}

func TestDialTimeout(t *testing.T) {
	dial := func(ctx context.Context, _ int32) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	run(t, Config{Dial: dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		began := time.Now()
		if _, err := p.ReadView(ctx, testNode, testTopic, 0); !errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		if got, want := time.Since(began), 5*time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
	})
}

// An API that the broker lacks is neither a cut nor an answer.
func TestUnsupported(t *testing.T) {
	b := &scriptedBroker{handle: steadyLeader().handle}
	run(t, Config{Dial: b.dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		c, err := p.connection(ctx, testNode)
		if err != nil {
			t.Fatal(err)
		}
		delete(c.versions, int16(kmsg.DescribeProducers))
		_, err = p.ReadView(ctx, testNode, testTopic, 0)
		var lacks *UnsupportedError
		if !errors.As(err, &lacks) || lacks.Op != "DescribeProducers" {
			t.Errorf("got %v, want an UnsupportedError for DescribeProducers", err)
		}
		if _, err := p.ReadTopic(ctx, testNode, "orders"); err != nil {
			t.Errorf("another API: %v", err)
		}
	})
}

func TestClosed(t *testing.T) {
	t.Run("while calls wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := steadyLeader()
			b := &scriptedBroker{handle: func(r kmsg.Request) reply {
				do := l.handle(r)
				do.fate = unanswered
				return do
			}}
			p := New(Config{Dial: b.dial, FenceID: testFence, Logger: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			calls.Go(func() { p.Run(ctx) })
			for range 3 {
				calls.Go(func() {
					if _, err := p.ReadView(t.Context(), testNode, testTopic, 0); !errors.Is(err, ErrClosed) {
						t.Errorf("got %v, want ErrClosed", err)
					}
				})
			}
			synctest.Wait()
			cancel()
			calls.Wait()
			if _, err := p.ReadView(t.Context(), testNode, testTopic, 0); !errors.Is(err, ErrClosed) {
				t.Errorf("after Run: got %v, want ErrClosed", err)
			}
		})
	})
	t.Run("while dialling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dial := func(ctx context.Context, _ int32) (net.Conn, error) {
				<-ctx.Done()
				near, _ := net.Pipe()
				return near, nil // just too late
			}
			p := New(Config{Dial: dial, FenceID: testFence, Logger: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			calls.Go(func() {
				if _, err := p.ReadView(t.Context(), testNode, testTopic, 0); !errors.Is(err, ErrClosed) {
					t.Errorf("got %v, want ErrClosed", err)
				}
			})
			synctest.Wait()
			cancel()
			p.Run(ctx)
			calls.Wait()
		})
	})
}

// A frame's memory follows the bytes that arrive.
func TestReadFrameAllocatesWhatArrives(t *testing.T) {
	header := binary.BigEndian.AppendUint32(nil, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readFrame(&shortReader{rest: header}, 1<<30)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want io.ErrUnexpectedEOF", err)
	}
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20); got > limit {
		t.Errorf("a frame that does not come takes %d bytes, want at most %d", got, limit)
	}
}

type shortReader struct{ rest []byte }

func (r *shortReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// lastingConn is to be used until some time.
type lastingConn struct {
	net.Conn
	until time.Time
}

func (c lastingConn) UseUntil() time.Time { return c.until }

// A login ends some time after it began (KIP-368): by then another connection
// has taken over, and no call has failed.
func TestConnectionIsReplacedBeforeItsLoginEnds(t *testing.T) {
	const lasts = time.Minute
	l := steadyLeader()
	b := &scriptedBroker{handle: l.handle}
	var mu sync.Mutex
	closed := 0
	dial := func(ctx context.Context, node int32) (net.Conn, error) {
		nc, err := b.dial(ctx, node)
		counted := &countedConn{Conn: nc, closed: func() { mu.Lock(); closed++; mu.Unlock() }}
		return lastingConn{counted, time.Now().Add(lasts)}, err
	}
	run(t, Config{Dial: dial}, func(t *testing.T, ctx context.Context, p *Pool) {
		for i, wait := range []time.Duration{0, lasts - time.Second, 2 * time.Second, lasts / 2, lasts} {
			time.Sleep(wait)
			if _, err := p.ReadView(ctx, testNode, testTopic, 0); err != nil {
				t.Errorf("view %d: %v", i, err)
			}
			if got, want := b.dialled(), []int{1, 1, 2, 2, 3}[i]; got != want {
				t.Errorf("view %d: got %d dials, want %d", i, got, want)
			}
		}
		time.Sleep(lasts / 2)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if closed != 2 {
			t.Errorf("got %d connections closed, want the 2 that were replaced", closed)
		}
	})
}

// countedConn tells when it is closed.
type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}
