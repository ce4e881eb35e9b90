package fence

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// TestScripts runs the stories in testdata. Each line of a command's output is
// an effect, or a line of state where the command asks for it. Run with
// -rewrite to write outputs anew, and read the difference.
//
//	config [marking=log-start|none] [rounds=n] [max-unsettled=n] [max-producers=n] [keep=10m] [fair] [broken=guard]
//	    a new partition that knows nothing
//	old a at=5 …, as for admit: does it cost a reading of old records?
//	admit a at=5 [records=x,y] [append-id] [node=1] [opened=-1h] [hold=10s] [answer=5s] [ts=-1h]
//	    [replay=content|off] | admit a at=end [tried=5] …
//	    [producer=7/0/15 [conn=1]]
//	    producer is the client's id, epoch and sequence;
//	    first is the first record's timestamp;
//	    records default to one named as the ticket; records of one name are equal;
//	    opened is when the connection was open, ts the max timestamp, both from now
//	view next=5 [hw=5] [seq=5 [epoch=0] [state-ts=-1m]] [leader=1/0] [asked=1] [at=-1ms] [tail]
//	view-failed [asked=1] [code=6] [final]
//	committed end=7 [at=-1ms]: seen while a view is read
//	answer a [code=0] [base=5] [lat=…]
//	abandon a | not-sent a | unsendable a | cancel a
//	records 1 hw=7 [start=0] [to=7] [failed [code=29] [final]]   one line of input for each record:
//	    5 x [append-id] [seq=5] [epoch=0] [first=0] [append-time] | 5 control
//	refused a producer=7/0/15 [at=end] …   refused before it came to the fence
//	advance 50ms | tick | idle | state | producer 7
//
// Times begin at one hour; a view's At is 1 ms before it arrives.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Base(filepath.Dir(path)) == "schedules" {
			return // TestSchedules' own
		}
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type script struct {
	cfg     Config
	marking Marking
	now     ps.Instant
	part    *Partition
	tickets map[string]*Ticket
	names   map[*Ticket]string
	digests map[string]uint64
}

func newScript() *script {
	s := &script{}
	s.reset()
	return s
}

func (s *script) reset() {
	s.now = ps.Instant(time.Hour)
	s.cfg = Config{
		ViewMaxAge: time.Minute, AdmissionWait: 50 * time.Millisecond, ProducerExpiry: 24 * time.Hour,
		ConnectionIdle: 10 * time.Minute, Margin: 10 * time.Minute, SameViewRounds: 3,
	}
	s.marking = MarkLogAppendTime
	s.part = New(&s.cfg, new(ps.State))
	s.tickets, s.names, s.digests = map[string]*Ticket{}, map[*Ticket]string{}, map[string]uint64{}
}

func (s *script) clock() ps.Now {
	return ps.Now{Instant: s.now, Wall: ps.Timestamp(s.now) / 1e6}
}

// arguments reads a command's arguments, each of which has a default.
type arguments struct {
	t *testing.T
	d *datadriven.TestData
}

func (a arguments) text(key, otherwise string) string {
	if v, ok := a.d.Arg(key); ok && len(v.Vals) > 0 {
		return strings.Join(v.Vals, ",")
	}
	return otherwise
}

func (a arguments) int(key string, otherwise int64) int64 {
	v, err := strconv.ParseInt(a.text(key, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

func (a arguments) offset(key string, otherwise ps.Offset) ps.Offset {
	return ps.Offset(a.int(key, int64(otherwise)))
}

func (a arguments) ago(key, otherwise string) time.Duration {
	v, err := time.ParseDuration(a.text(key, otherwise))
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}

// first is the command's first argument, which has no value.
func (a arguments) first() string {
	if len(a.d.CmdArgs) == 0 {
		a.d.Fatalf(a.t, "argument missing")
	}
	return a.d.CmdArgs[0].Key
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	a := arguments{t, d}
	now := s.clock()
	switch d.Cmd {
	case "config":
		s.reset()
		s.configure(a)
		return ""
	case "admit":
		return s.effects(s.part.Admit(now, s.ticket(a)))
	case "old":
		return fmt.Sprintf("%v\n", s.part.ReadsOld(now, &s.ticket(a).Batch))
	case "refused":
		return s.effects(s.part.Refused(now, s.ticket(a)))
	case "view":
		return s.effects(s.part.ViewRead(now, ps.NodeID(a.int("asked", 1)), s.view(a)))
	case "committed":
		return s.effects(s.part.CommittedSeen(now, a.offset("end", 0), s.now.Add(a.ago("at", "-1ms"))))
	case "view-failed":
		return s.effects(s.part.ViewFailed(now, ps.NodeID(a.int("asked", 1)), int16(a.int("code", 6)), d.HasArg("final")))
	case "answer":
		return s.effects(s.part.Answered(now, s.named(a), Answer{
			Code: int16(a.int("code", 0)), BaseOffset: a.offset("base", ps.NoOffset),
			LogAppendTime: ps.Timestamp(a.int("lat", -1)), LogStart: a.offset("log-start", 0),
		}))
	case "abandon":
		return s.effects(s.part.Abandoned(now, s.named(a)))
	case "not-sent":
		return s.effects(s.part.NotSent(now, s.named(a)))
	case "unsendable":
		return s.effects(s.part.Unsendable(now, s.named(a)))
	case "cancel":
		return s.effects(s.part.Cancel(now, s.named(a)))
	case "records":
		return s.records(a)
	case "advance":
		by, err := time.ParseDuration(a.first())
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(by)
		return s.effects(s.part.Tick(s.clock()))
	case "tick":
		return s.effects(s.part.Tick(now))
	case "idle":
		if s.part.Busy() {
			return "busy"
		}
		state := s.part.State()
		state.Idle(s.now)
		s.part = New(&s.cfg, state)
		return "idle"
	case "state":
		return s.state()
	case "producer":
		return s.producer(a)
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (s *script) configure(a arguments) {
	s.marking = map[string]Marking{"log-start": MarkLogStartOffset, "none": MarkNone}[a.text("marking", "")]
	s.cfg.SameViewRounds = int(a.int("rounds", int64(s.cfg.SameViewRounds)))
	s.cfg.MaxUnsettled = int(a.int("max-unsettled", 0))
	s.cfg.MaxProducers = int(a.int("max-producers", 0))
	s.cfg.ProducerKeep = a.ago("keep", "10m")
	s.cfg.Unsafe = a.d.HasArg("unsafe")
	if a.d.HasArg("fair") {
		s.cfg.Fairness = testFairness
	}
	if name := a.text("broken", ""); name != "" {
		if s.cfg.broken = guardNamed(name); s.cfg.broken == 0 {
			a.d.Fatalf(a.t, "no guard %s", name)
		}
	}
}

func (s *script) record(name string, appendID bool) ps.Record {
	if appendID {
		name += " append-id" // a header like others, of which the digest is
	}
	if s.digests[name] == 0 {
		s.digests[name] = uint64(len(s.digests) + 1)
	}
	return ps.Record{Digest: s.digests[name], AppendID: appendID}
}

func (s *script) ticket(a arguments) *Ticket {
	name := a.first()
	t := &Ticket{Batch: Batch{
		FirstTimestamp: ps.Timestamp(a.int("first", 0)),
		MaxTimestamp:   s.clock().Wall + ps.Timestamp(a.ago("ts", "0s").Milliseconds()),
		Node:           ps.NodeID(a.int("node", 1)), ConnOpened: s.now.Add(a.ago("opened", "-1h")),
		HoldUntil: s.now.Add(a.ago("hold", "10s")), AnswerWithin: a.ago("answer", "5s"),
		Marking: s.marking,
		Replay:  map[string]Replay{"content": ReplayContent, "off": ReplayOff}[a.text("replay", "id")],
	}}
	if t.AtEnd = a.text("at", "") == "end"; t.AtEnd {
		t.Expected = a.offset("tried", ps.NoOffset)
	} else {
		t.Expected = a.offset("at", 0)
	}
	for r := range strings.SplitSeq(a.text("records", name), ",") {
		t.Records = append(t.Records, s.record(r, a.d.HasArg("append-id")))
	}
	t.Producer = s.clientBatch(a)
	s.tickets[name], s.names[t] = t, name
	return t
}

func (s *script) named(a arguments) *Ticket {
	t := s.tickets[a.first()]
	if t == nil {
		a.d.Fatalf(a.t, "no ticket %s", a.first())
	}
	return t
}

func (s *script) view(a arguments) ps.View {
	v := ps.View{
		Leader: 1, Next: a.offset("next", 0), StateTimestamp: -1, FromTail: a.d.HasArg("tail"), At: s.now.Add(a.ago("at", "-1ms")),
	}
	v.HighWatermark = a.offset("hw", v.Next)
	if node, epoch, ok := strings.Cut(a.text("leader", "1/0"), "/"); ok {
		n, err := strconv.Atoi(node)
		e, err2 := strconv.Atoi(epoch)
		if err != nil || err2 != nil {
			a.d.Fatalf(a.t, "leader: want node/epoch")
		}
		v.Leader, v.LeaderEpoch = ps.NodeID(n), ps.LeaderEpoch(e)
	}
	if a.d.HasArg("seq") {
		v.HasState, v.Sequence, v.Epoch = true, ps.Sequence(a.int("seq", 0)), ps.ProducerEpoch(a.int("epoch", 0))
		v.StateTimestamp = s.clock().Wall + ps.Timestamp(a.ago("state-ts", "-1m").Milliseconds())
	}
	return v
}

func (s *script) records(a arguments) string {
	id, err := strconv.Atoi(a.first())
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	if a.d.HasArg("failed") {
		return s.effects(s.part.RecordsFailed(s.clock(), ReadID(id), int16(a.int("code", 0)), a.d.HasArg("final")))
	}
	got := Stored{HighWatermark: a.offset("hw", 0), LogStart: a.offset("start", 0), At: s.now.Add(-time.Millisecond)}
	got.ReadTo = a.offset("to", got.HighWatermark)
	for line := range strings.Lines(a.d.Input) {
		got.Records = append(got.Records, s.stored(a, strings.Fields(line)))
	}
	return s.effects(s.part.RecordsRead(s.clock(), ReadID(id), got))
}

func (s *script) stored(a arguments, fields []string) StoredRecord {
	if len(fields) < 2 {
		a.d.Fatalf(a.t, "want an offset and a record")
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			a.d.Fatalf(a.t, "%v", err)
		}
		return n
	}
	r := StoredRecord{Offset: ps.Offset(number(fields[0]))}
	if fields[1] == "control" {
		r.Control = true
		return r
	}
	r.Record = s.record(fields[1], slices.Contains(fields[2:], "append-id"))
	for _, f := range fields[2:] {
		switch key, value, _ := strings.Cut(f, "="); key {
		case "append-id": // part of the record
		case "append-time":
			r.AppendTime = true
		case "seq":
			r.ByFence, r.Sequence = true, ps.Sequence(number(value))
		case "first":
			r.Timestamp = ps.Timestamp(number(value))
		case "epoch":
			r.Epoch = ps.ProducerEpoch(number(value))
		default:
			a.d.Fatalf(a.t, "unknown %s", f)
		}
	}
	return r
}

// effects writes down what the partition wants, and whom it concerns.
func (s *script) effects(effects []Effect) string {
	var b strings.Builder
	for _, e := range effects {
		if e.Ticket != nil {
			fmt.Fprintf(&b, "%s: ", s.names[e.Ticket])
		}
		if e.Ticket != nil && e.Ticket.detached {
			b.WriteString("(nobody waits) ")
		}
		b.WriteString(e.String())
		if e.Kind == ReadRecords {
			fmt.Fprintf(&b, " (%d)", e.Read)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// waitingIn is the number of batches that are held and not upstream.
func waitingIn(p *Partition) int {
	n := 0
	for _, t := range p.tickets {
		if t.phase == waiting {
			n++
		}
	}
	return n
}

func (s *script) state() string {
	var b strings.Builder
	state := s.part.State()
	if v, ok := state.View(); ok {
		fmt.Fprintf(&b, "view: %v, %v old\n", v, s.now.Sub(v.At))
	} else {
		b.WriteString("view: none\n")
	}
	fmt.Fprintf(&b, "committed: %d\nwitnessed: %v\n", state.LowerBound(), s.part.witnessed(s.clock()))
	for _, u := range state.Unsettled() {
		fmt.Fprintf(&b, "unknown: %d..%d seq %d\n", u.Expected, u.End()-1, u.BaseSequence)
	}
	if at, ok := s.part.Wake(); ok {
		fmt.Fprintf(&b, "wake: in %v\n", at.Sub(s.now))
	}
	fmt.Fprintf(&b, "busy: %v, waiting: %d\n", s.part.Busy(), waitingIn(s.part))
	return b.String()
}
