package verify

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is what a scripted proxy says to a Produce.
type reply struct {
	code    int16
	offset  Offset
	message string
	// cut: it says nothing and closes the connection.
	cut bool
}

var (
	appended = reply{offset: 5}
	silence  = reply{cut: true}
	notLead  = reply{code: 6, offset: -1}
	taken    = reply{code: 1, offset: -1, message: "expected-offset taken: expected=5 next=9"}
	short    = reply{code: 1, offset: -1, message: "expected-offset not reached: expected=5 next=2"}
	tooLate  = reply{code: 7, offset: -1}
	notNow   = reply{code: -1, offset: -1, message: "outcome unknown: expected=5 next=5; read the partition from 5"}
	unserved = reply{code: 44, offset: -1, message: "topic is not served: for a reason"}
	gap      = reply{code: 45, offset: -1}
)

// sent is a batch that came to a scripted proxy.
type sent struct {
	proxy              int
	records            []string // names
	expected           string   // of the first
	identified         bool
	producer           int64
	sequence           int32
	firstTime, maxTime int64
}

// stage is two scripted proxies that share a script.
type stage struct {
	t       *testing.T
	proxies []string

	mu     sync.Mutex
	script []reply
	then   *reply // said when the script has ended; nil: that is a fault
	came   []sent
}

func newStage(t *testing.T, script ...reply) *stage {
	s := &stage{t: t, script: script}
	for i := range 2 {
		up := make(chan struct{})
		var server *kafkatest.Server
		server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
			<-up
			for r, ok := c.Next(); ok && s.answer(i, server.Port(), c, r); r, ok = c.Next() {
			}
		})
		close(up)
		s.proxies = append(s.proxies, server.Addr())
	}
	return s
}

// answer answers one request; false: cut.
func (s *stage) answer(proxy int, port int32, c *kafkatest.Conn, r kafkatest.Request) bool {
	request, err := r.Decode()
	if err != nil {
		s.t.Errorf("request: %v", err)
		return false
	}
	switch request := request.(type) {
	case *kmsg.MetadataRequest:
		metadata := kafkatest.Metadata(kafkatest.Broker{Node: 1, Host: "127.0.0.1", Port: port})
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader = 1
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.Partitions = request.Topics[0].Topic, append(topic.Partitions, partition)
		metadata.Topics = append(metadata.Topics, topic)
		c.Answer(r, metadata)
	case *kmsg.ProduceRequest:
		say, ok := s.next(proxy, request.Topics[0].Partitions[0].Records)
		if !ok || say.cut {
			return false
		}
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.ErrorCode, partition.BaseOffset = say.code, int64(say.offset)
		if say.message != "" {
			partition.ErrorMessage = &say.message
		}
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.Partitions = request.Topics[0].Topic, append(topic.Partitions, partition)
		answer := kmsg.NewPtrProduceResponse()
		answer.Topics = append(answer.Topics, topic)
		c.Answer(r, answer)
	}
	return true
}

// next notes a batch and gives what is said to it.
func (s *stage) next(proxy int, raw []byte) (reply, bool) {
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(raw); err != nil {
		s.t.Errorf("batch: %v", err)
		return reply{}, false
	}
	one := sent{
		proxy: proxy, producer: batch.ProducerID, sequence: batch.FirstSequence,
		firstTime: batch.FirstTimestamp, maxTime: batch.MaxTimestamp,
	}
	for rest := batch.Records; len(one.records) < int(batch.NumRecords); {
		var record kmsg.Record
		if err := record.ReadFrom(rest); err != nil {
			s.t.Errorf("record: %v", err)
			return reply{}, false
		}
		rest = rest[len(record.AppendTo(nil)):]
		for _, h := range record.Headers {
			switch h.Key {
			case "expected-offset":
				if len(one.records) == 0 {
					one.expected = string(h.Value)
				}
			case "append-id":
				one.identified = string(h.Value) == string(record.Value)
			}
		}
		one.records = append(one.records, string(record.Value))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, one)
	if len(s.script) == 0 && s.then != nil {
		return *s.then, true
	}
	if len(s.script) == 0 {
		s.t.Errorf("batch %d came, and the script has ended", len(s.came))
		return reply{}, false
	}
	say := s.script[0]
	s.script = s.script[1:]
	return say, true
}

// perform has one append of a habit made, and gives what came and its tries.
func (s *stage) perform(habit Habit, records uint16) ([]sent, Op) {
	s.t.Helper()
	cfg, err := Config{
		Proxies: s.proxies, Topic: "t", RequestTimeout: 5 * time.Second, Patience: 20 * time.Second, Seed: 4,
	}.withDefaults()
	if err != nil {
		s.t.Fatal(err)
	}
	var file bytes.Buffer
	run := &running{cfg: cfg, began: time.Now(), begins: []Offset{0}, recorder: newRecorder(&file), habits: []Habit{habit}}
	run.setup = Setup{Run: "r", Topic: "t", Proxies: s.proxies, Partitions: 1, Writers: 1}
	w := newWriter(run, 0)
	defer func() {
		for _, l := range w.links {
			l.close()
		}
	}()
	w.op = Op{Expected: 5, Records: records, Habit: habit}
	if habit == End {
		w.op.Expected = NoOffset
	}
	run.recorder.setup(run.setup)
	w.append(s.t.Context(), AppendID{0, 0})
	if err := run.recorder.flush(); err != nil {
		s.t.Fatal(err)
	}
	// What was written is what happened.
	h, err := ReadHistory(&file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) > 0 {
		s.t.Errorf("%d answers were not asked for", len(s.script))
	}
	op := h.Ops[0][0]
	for i := range op.Tries {
		if op.Tries[i] != w.op.Tries[i] {
			s.t.Errorf("try %d was written as %+v, and was %+v", i, op.Tries[i], w.op.Tries[i])
		}
	}
	return s.came, op
}

func outcomes(op Op) string {
	var all []string
	for _, t := range op.Tries {
		all = append(all, t.Outcome.String())
	}
	return strings.Join(all, " ")
}

// TestHabits tells how each habit sends, and when it has had enough.
func TestHabits(t *testing.T) {
	for _, c := range []struct {
		habit   Habit
		script  []reply
		tries   string
		outcome Outcome
	}{
		{Once, []reply{appended}, "ok", OK},
		{Once, []reply{silence}, "unknown", Unknown},
		{Once, []reply{notLead}, "refused", Refused},
		{Once, []reply{taken}, "taken", Taken},
		{Once, []reply{short}, "not_reached", NotReached},
		{Once, []reply{tooLate}, "unknown", Unknown},
		{Once, []reply{notNow}, "unknown", Unknown},
		{Once, []reply{unserved}, "refused", Refused},
		{End, []reply{appended}, "ok", OK},
		{End, []reply{silence}, "unknown", Unknown},
		{Insisting, []reply{appended}, "ok", OK},
		{Insisting, []reply{silence, notNow, appended}, "unknown unknown ok", OK},
		{Insisting, []reply{silence, taken}, "unknown taken", Taken},
		{Insisting, []reply{silence, short, taken}, "unknown not_reached taken", Taken},
		{Insisting, []reply{notLead, short}, "refused not_reached", NotReached},
		{Insisting, []reply{unserved}, "refused", Refused},
		{Moving, []reply{silence, silence, appended}, "unknown unknown ok", OK},
		{Restamping, []reply{tooLate, appended}, "unknown ok", OK},
		{Duplicating, []reply{appended, appended}, "ok ok", OK},
		{Duplicating, []reply{silence, silence, appended}, "unknown unknown ok", OK},
		{Idempotent, []reply{silence, appended}, "unknown ok", OK},
		{Idempotent, []reply{silence, gap}, "unknown refused", Unknown},
		{Idempotent, []reply{gap}, "refused", Refused},
	} {
		t.Run(fmt.Sprintf("%v: %s", c.habit, c.tries), func(t *testing.T) {
			came, op := newStage(t, c.script...).perform(c.habit, 2)
			if got := outcomes(op); got != c.tries || op.outcome() != c.outcome {
				t.Errorf("got tries %q and %v, want %q and %v", got, op.outcome(), c.tries, c.outcome)
			}
			for i, one := range came {
				want := sent{
					proxy: 0, records: []string{"verify/r/0/0/0", "verify/r/0/0/1"}, expected: "5",
					identified: c.habit != Once && c.habit != End && c.habit != Idempotent, producer: -1, sequence: -1,
					firstTime: came[0].firstTime, maxTime: came[0].firstTime + 1,
				}
				switch c.habit {
				case End:
					want.expected = "end"
				case Moving:
					want.proxy = i % 2
				case Restamping:
					want.firstTime, want.maxTime = one.firstTime, one.firstTime+1
					if i > 0 && one.firstTime == came[i-1].firstTime {
						t.Errorf("batch %d has the timestamp of the one before", i)
					}
				case Duplicating:
					want.proxy = one.proxy
				case Idempotent:
					want.producer, want.sequence = came[0].producer, 0
					if one.producer < 0 {
						t.Errorf("batch %d has no producer", i)
					}
				}
				if got := fmt.Sprintf("%+v", one); got != fmt.Sprintf("%+v", want) {
					t.Errorf("batch %d: got %s, want %+v", i, got, want)
				}
			}
		})
	}
}

// TestRebuildingCutsAnew sends the records in other batches until each has its answer,
// and none that has one.
func TestRebuildingCutsAnew(t *testing.T) {
	const records = 8
	s := newStage(t, silence, silence)
	s.then = &reply{code: 1, offset: -1, message: "expected-offset taken: expected=5 next=99"}
	came, op := s.perform(Rebuilding, records)
	times, sizes := map[string]int{}, map[int]bool{}
	for i, one := range came {
		sizes[len(one.records)] = true
		if want := strconv.Itoa(5 + int(op.Tries[i].First)); one.expected != want || len(one.records) != int(op.Tries[i].Records) {
			t.Errorf("batch %d: got %d records that expect %s, want %s and %+v", i, len(one.records), one.expected, want, op.Tries[i])
		}
		for _, name := range one.records {
			times[name]++
		}
	}
	if len(times) != records || len(sizes) < 2 || op.outcome() != Taken {
		t.Errorf("%d records came, in batches of %v, and the outcome is %v", len(times), sizes, op.outcome())
	}
	for name, n := range times {
		if n > 3 {
			t.Errorf("%s came %d times", name, n)
		}
	}
}

// TestAProducerGoesOn as franz-go does: behind what was appended, and with the same
// sequence after a refusal; after an unknown it is another.
func TestAProducerGoesOn(t *testing.T) {
	w := &writer{rng: rand.New(rand.NewPCG(1, 1)), producers: []producer{{id: -1}}}
	p := w.producer(0)
	w.op = Op{Records: 3, Habit: Idempotent, Tries: []Try{{Records: 3, Outcome: OK}}}
	w.after(p)
	if got, want := w.producer(0), (producer{id: p.id, sequence: 3}); got != want {
		t.Errorf("after a success: got %+v, want %+v", got, want)
	}
	same := 0
	for range 100 {
		p = w.producer(0)
		w.op.Tries[0] = Try{Records: 3, Outcome: NotReached, Next: 1}
		w.after(p)
		if w.producer(0) == p {
			same++
		}
	}
	if same < 50 || same == 100 {
		t.Errorf("after 100 refusals it was the same %d times", same)
	}
	p = w.producer(0)
	w.op.Tries[0] = Try{Records: 3, Outcome: Unknown}
	w.after(p)
	if w.producer(0).id == p.id {
		t.Error("after an unknown it is the same")
	}
}
