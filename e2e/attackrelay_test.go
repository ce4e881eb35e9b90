package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// mischief is what a rogue does to one Produce request on its way to the brokers.
type mischief int

const (
	letPass     mischief = iota
	loseBefore           // the connection ends, and nothing of the request arrives
	loseWithin           // half of the request arrives
	loseAnswer           // the request is carried out, and its answer is lost
	deliverLate          // the connection ends, and the request arrives a while after
	stall                // the request arrives a while later than it was sent
	stallAnswer          // so does its answer
	mischiefs
)

// rogue stands between a fencing proxy and the brokers and disturbs what the
// proxy sends. Brokers tell where they are, so behind it is another proxy, without
// rules, which has the fencing one come back to the rogue.
type rogue struct {
	bootstrap string
	one       int // request in so many is disturbed

	mu      sync.Mutex
	pending int       // requests still to be delivered
	settled sync.Cond // broadcast when it becomes 0
	rng     *rand.Rand
	calm    bool
	did     [mischiefs]int
}

// startRogue stands before the brokers until the test ends.
func startRogue(t *testing.T, seed uint64, one int) *rogue {
	t.Helper()
	behind := startProxy(t, "--advertised-host", relayHost)
	r := &rogue{one: one, rng: rand.New(rand.NewPCG(seed, 0))}
	r.settled.L = &r.mu
	r.bootstrap = standBefore(t, behind, func(proxy, broker net.Conn) (requests, answers func()) {
		c := &roguePipe{rogue: r, proxy: proxy, broker: broker, did: map[uint32]mischief{}}
		return c.requests, c.answers
	})
	return r
}

// draw says what becomes of the next Produce request, and after how long.
func (r *rogue) draw() (mischief, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, after := letPass, time.Duration(r.rng.Int64N(int64(time.Second)))
	if !r.calm && r.rng.IntN(r.one) == 0 {
		m = 1 + mischief(r.rng.IntN(int(mischiefs)-1))
	}
	switch m {
	case deliverLate:
		r.pending++
		after *= 4
	case stall:
		r.pending++
		if r.rng.IntN(8) == 0 {
			after = 8 * time.Second // longer than its answer is waited for
		}
	}
	r.did[m]++
	return m, after
}

// settle ends the mischief and waits until all has arrived that will.
func (r *rogue) settle() [mischiefs]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.calm = true; r.pending > 0; {
		r.settled.Wait()
	}
	return r.did
}

// delivered notes that a request that draw held up has arrived, or never will.
func (r *rogue) delivered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending--; r.pending == 0 {
		r.settled.Broadcast()
	}
}

// pause is for how long an answer is held up.
func (r *rogue) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.rng.Int64N(int64(time.Second)))
}

// roguePipe is one connection of a proxy to a broker.
type roguePipe struct {
	rogue         *rogue
	proxy, broker net.Conn

	mu   sync.Mutex
	did  map[uint32]mischief // by correlation id, until it is answered
	late bool                // the broker's side outlives the proxy's
}

func (c *roguePipe) close() {
	_ = c.proxy.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.late {
		_ = c.broker.Close()
	}
}

func (c *roguePipe) requests() {
	defer c.close()
	for {
		frame, err := readFrame(c.proxy)
		if err != nil {
			return
		}
		whole := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		if len(frame) >= 8 && binary.BigEndian.Uint16(frame) == 0 { // Produce
			m, after := c.rogue.draw()
			switch m {
			case loseBefore:
				return
			case loseWithin:
				_, _ = c.broker.Write(whole[:len(whole)/2])
				return
			case deliverLate:
				c.deliverLate(whole, after)
				return
			case stall:
				time.Sleep(after)
				_, err := c.broker.Write(whole)
				c.rogue.delivered()
				if err != nil {
					return
				}
				continue
			case loseAnswer, stallAnswer:
				c.mu.Lock()
				c.did[binary.BigEndian.Uint32(frame[4:])] = m
				c.mu.Unlock()
			}
		}
		if _, err := c.broker.Write(whole); err != nil {
			return
		}
	}
}

func (c *roguePipe) deliverLate(frame []byte, after time.Duration) {
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	_ = c.proxy.Close()
	time.AfterFunc(after, func() {
		defer c.rogue.delivered()
		_, _ = c.broker.Write(frame)
		_ = c.broker.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = readFrame(c.broker)
		_ = c.broker.Close()
	})
}

func (c *roguePipe) answers() {
	defer c.close()
	for {
		c.mu.Lock()
		late := c.late
		c.mu.Unlock()
		if late {
			return // its answer is read elsewhere
		}
		frame, err := readFrame(c.broker)
		if err != nil || len(frame) < 4 {
			return
		}
		c.mu.Lock()
		m := c.did[binary.BigEndian.Uint32(frame)]
		c.mu.Unlock()
		switch m {
		case loseAnswer:
			return
		case stallAnswer:
			after := c.rogue.pause()
			time.Sleep(after)
		}
		if _, err := c.proxy.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			return
		}
	}
}
