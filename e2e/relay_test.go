package e2e

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relayHost is the address that relays are at: the ports are those of what they
// stand before, which only has to advertise this host.
const relayHost = "127.0.0.2"

// deed is what a relay does to one request, or to its answer.
type deed int

const (
	letPass         deed = iota
	cutBefore            // the connection ends, and nothing of the request arrives
	cutWithin            // half of the request arrives
	cutBehind            // all of it arrives, and nobody waits for the answer
	deliverLate          // the connection ends, and the request arrives a while after
	stall                // the request arrives a while later than it was sent
	duplicate            // it arrives, and once more on another connection
	loseAnswer           // it is carried out, and its answer is lost
	cutAnswer            // half of the answer arrives
	cutBehindAnswer      // the answer arrives, and the connection ends
	stallAnswer          // the answer arrives a while later
	deeds
)

func (d deed) String() string {
	return [...]string{
		"whole", "cut before", "cut within", "cut behind", "delivered late", "stalled", "sent twice",
		"answer lost", "answer cut within", "cut behind the answer", "answer stalled",
	}[d]
}

// relayed is a request on its way.
type relayed struct {
	produce int    // number of the Produce through this relay, from 0; −1: another request
	frame   []byte // with its length, to be read only now
	port    int
}

// verdict says what becomes of a request.
type verdict struct {
	deed  deed
	after time.Duration // for those that are held up
	reset bool          // a connection that is cut ends by RST
	// twin is where a duplicate goes, and answered, which may be nil, gets what
	// is said to it, nil for nothing.
	twin     string
	answered func(answer []byte)
	// done, which may be nil, is called when it has been done, which the end of
	// a connection may forestall.
	done func()
}

// happened tells who wants to know.
func (v verdict) happened() {
	if v.done != nil {
		v.done()
	}
}

// lateAnswer bounds the wait for the answer to what nobody waits for.
const lateAnswer = 10 * time.Second

// relay takes connections at relayHost for what listens at the same ports of this
// machine, and disturbs what its judge says.
type relay struct {
	bootstrap string // the first of its addresses
	ports     []int
	judge     func(relayed) verdict
	cuts      *atomic.Int32 // by startRelay's choice

	mu      sync.Mutex
	seen    int // Produce requests
	hold    func()
	open    map[io.Closer]bool
	pending int       // frames still to be delivered
	settled sync.Cond // broadcast when pending becomes 0
	group   sync.WaitGroup
}

// standBefore relays until the test ends.
func standBefore(t *testing.T, ports []int, judge func(relayed) verdict) *relay {
	t.Helper()
	r := &relay{
		bootstrap: net.JoinHostPort(relayHost, strconv.Itoa(ports[0])),
		ports:     ports, judge: judge, open: map[io.Closer]bool{},
	}
	r.settled.L = &r.mu
	t.Cleanup(r.close)
	for _, port := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(relayHost, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		r.keep(listener)
		r.group.Go(func() { r.accept(listener, port) })
	}
	return r
}

// addresses are all that it takes connections at.
func (r *relay) addresses() []string {
	var all []string
	for _, port := range r.ports {
		all = append(all, net.JoinHostPort(relayHost, strconv.Itoa(port)))
	}
	return all
}

// startRelay stands before a proxy that advertises relayHost, until the test
// ends. choose is asked of each Produce, by its number from 0.
func startRelay(t *testing.T, p *proxyProcess, choose func(produce int) deed) *relay {
	t.Helper()
	var cuts atomic.Int32
	r := standBefore(t, p.allPorts(), func(one relayed) verdict {
		if one.produce < 0 {
			return verdict{}
		}
		d := choose(one.produce)
		if d != letPass {
			cuts.Add(1)
		}
		return verdict{deed: d}
	})
	r.cuts = &cuts
	return r
}

// done is how many requests choose did not let pass.
func (r *relay) done() int { return int(r.cuts.Load()) }

// holdAnswers has wait called before each answer is relayed.
func (r *relay) holdAnswers(wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = wait
}

// held waits for as long as answers are held.
func (r *relay) held() {
	r.mu.Lock()
	wait := r.hold
	r.mu.Unlock()
	if wait != nil {
		wait()
	}
}

// settle waits until all has arrived that is held up.
func (r *relay) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.pending > 0 {
		r.settled.Wait()
	}
}

// holding counts a frame that is held up, and delivered one that is no more.
func (r *relay) holding() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
}

func (r *relay) delivered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending--; r.pending == 0 {
		r.settled.Broadcast()
	}
}

// keep has a connection closed with the relay; false: that is over already.
func (r *relay) keep(c io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		_ = c.Close()
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) drop(c io.Closer) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relay) close() {
	r.mu.Lock()
	open := r.open
	r.open = nil
	r.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
	r.group.Wait()
}

func (r *relay) accept(listener net.Listener, port int) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		r.group.Go(func() { r.connect(near, port) })
	}
}

func (r *relay) connect(near net.Conn, port int) {
	far, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		_ = near.Close()
		return
	}
	if !r.keep(near) || !r.keep(far) {
		_, _ = near.Close(), far.Close()
		return
	}
	c := &relayedConn{relay: r, port: port, near: near, far: far, verdicts: map[uint32]verdict{}}
	r.group.Go(c.requests)
	c.answers()
}

// ask has the judge judge.
func (r *relay) ask(frame []byte, port int) verdict {
	one := relayed{produce: -1, frame: frame, port: port}
	if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == 0 {
		r.mu.Lock()
		one.produce = r.seen
		r.seen++
		r.mu.Unlock()
	}
	return r.judge(one)
}

// relayedConn is one connection through a relay.
type relayedConn struct {
	relay     *relay
	port      int
	near, far net.Conn // near is the side of who asks

	mu       sync.Mutex
	verdicts map[uint32]verdict // of answers, by correlation id
	late     bool               // far outlives near, for one answer more
	lateID   uint32             // which one
	over     bool               // answers has ended
}

// cut ends the connection; not what late outlives it.
func (c *relayedConn) cut(reset bool) {
	if reset {
		for _, side := range []net.Conn{c.near, c.far} {
			if tcp, ok := side.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}
	}
	c.relay.drop(c.near)
	c.mu.Lock()
	late := c.late
	c.mu.Unlock()
	if !late {
		c.relay.drop(c.far)
	}
}

// requests relays from the side of who asks, frame by frame.
func (c *relayedConn) requests() {
	reset := false
	defer func() { c.cut(reset) }()
	from := bufio.NewReader(c.near)
	var buffer []byte
	for {
		frame, err := readWhole(from, buffer)
		if err != nil {
			return
		}
		buffer = frame
		v := c.relay.ask(frame, c.port)
		reset = v.reset
		switch v.deed {
		case cutBefore:
			v.happened()
			return
		case cutWithin, cutBehind:
			if v.deed == cutWithin {
				frame = frame[:len(frame)/2]
			}
			if _, err := c.far.Write(frame); err == nil {
				v.happened()
			}
			return
		case deliverLate:
			c.deliverLate(frame, v)
			return
		case stall:
			c.relay.holding()
			time.Sleep(v.after)
			_, err := c.far.Write(frame)
			c.relay.delivered()
			if err != nil {
				return
			}
			v.happened()
			continue
		case duplicate:
			c.relay.holding()
			twin := append([]byte(nil), frame...)
			c.relay.group.Go(func() { c.relay.duplicate(twin, v) })
		case loseAnswer, cutAnswer, cutBehindAnswer, stallAnswer:
			c.mu.Lock()
			c.verdicts[correlationID(frame)] = v
			c.mu.Unlock()
		}
		if _, err := c.far.Write(frame); err != nil {
			return
		}
	}
}

// correlationID is that of a request with its length.
func correlationID(frame []byte) uint32 {
	if len(frame) < 12 {
		return 0
	}
	return binary.BigEndian.Uint32(frame[8:])
}

// deliverLate has a request arrive when who asked has given up.
func (c *relayedConn) deliverLate(frame []byte, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.late, c.lateID = true, correlationID(frame)
	c.relay.holding() // until answers has ended
	time.AfterFunc(v.after, func() {
		if _, err := c.far.Write(frame); err == nil {
			v.happened()
		}
		_ = c.far.SetReadDeadline(time.Now().Add(lateAnswer))
	})
}

// duplicate sends a request on a connection of its own.
func (r *relay) duplicate(frame []byte, v verdict) {
	defer r.delivered()
	var answer []byte
	if conn, err := net.Dial("tcp", v.twin); err == nil {
		if r.keep(conn) {
			time.Sleep(v.after)
			_ = conn.SetDeadline(time.Now().Add(lateAnswer))
			if _, err := conn.Write(frame); err == nil {
				v.happened()
				answer, _ = readWhole(conn, nil)
			}
		}
		r.drop(conn)
	}
	if v.answered != nil {
		v.answered(answer)
	}
}

// answers relays to who asked.
func (c *relayedConn) answers() {
	reset := false
	defer func() {
		c.mu.Lock()
		c.over = true
		late := c.late
		c.late = false
		c.mu.Unlock()
		c.cut(reset)
		if late {
			c.relay.delivered()
		}
	}()
	from := bufio.NewReader(c.far)
	var buffer []byte
	for {
		frame, err := readWhole(from, buffer)
		if err != nil || len(frame) < 8 {
			return
		}
		buffer = frame
		id := binary.BigEndian.Uint32(frame[4:])
		c.mu.Lock()
		v := c.verdicts[id]
		delete(c.verdicts, id)
		late, last := c.late, c.late && c.lateID == id
		c.mu.Unlock()
		if last {
			return
		}
		if late {
			continue
		}
		reset = v.reset
		switch v.deed {
		case loseAnswer:
			v.happened()
			return
		case cutAnswer:
			if _, err := c.near.Write(frame[:len(frame)/2]); err == nil {
				v.happened()
			}
			return
		case stallAnswer:
			time.Sleep(v.after)
		}
		c.relay.held()
		if _, err := c.near.Write(frame); err != nil {
			c.mu.Lock()
			late := c.late
			c.mu.Unlock()
			if !late {
				return
			}
		} else if v.deed == stallAnswer || v.deed == cutBehindAnswer {
			v.happened()
		}
		if v.deed == cutBehindAnswer {
			return
		}
	}
}

// readWhole reads a frame with its length, into buffer if it has room.
func readWhole(r io.Reader, buffer []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	size := 4 + int(binary.BigEndian.Uint32(length[:]))
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	copy(buffer, length[:])
	_, err := io.ReadFull(r, buffer[4:])
	return buffer, err
}
