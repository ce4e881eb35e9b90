package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what a history may say of itself.
const (
	maxLine       = 64 << 10
	maxWriters    = 100_000
	maxPartitions = 100_000
	maxProxies    = 1_000
	maxBatch      = 200
	maxRecords    = 100_000_000
	maxOffset     = 1 << 62
)

// ErrBadHistory means that a history cannot be read.
var ErrBadHistory = errors.New("bad history")

// historyLine is any line.
type historyLine struct {
	Type       string   `json:"type"`
	Run        string   `json:"run"`
	Topic      string   `json:"topic"`
	Proxies    []string `json:"proxies"`
	Partitions int      `json:"partitions"`
	Writers    int      `json:"writers"`
	Seed       uint64   `json:"seed"`

	Writer    int32        `json:"writer"`
	Op        AppendNumber `json:"op"`
	Partition Partition    `json:"partition"`
	Habit     string       `json:"habit"`
	Expected  Offset       `json:"expected"`
	First     uint16       `json:"first"`
	Records   uint16       `json:"records"`
	Proxy     uint16       `json:"proxy"`
	Start     Moment       `json:"start"`
	End       Moment       `json:"end"`
	Outcome   string       `json:"outcome"`
	Offset    Offset       `json:"offset"`
	Next      Offset       `json:"next"`
	Code      int16        `json:"code"`
	Names     []string     `json:"names"`
}

// ReadHistory reads what Run wrote. A last line that is not whole is left out, and
// History.Cut says so. Errors: ErrBadHistory, and those of r.
func ReadHistory(r io.Reader) (*History, error) {
	lines := bufio.NewReaderSize(r, maxLine)
	var h *History
	for number := 1; ; number++ {
		text, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%w: line %d is longer than %d bytes", ErrBadHistory, number, maxLine)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read the history: %w", err)
		case err != nil && h == nil && len(text) == 0:
			return nil, fmt.Errorf("%w: it is empty", ErrBadHistory)
		case err != nil && len(text) == 0:
			return h, nil
		}
		whole := err == nil
		line := historyLine{Expected: NoOffset, Offset: NoOffset, Next: NoOffset}
		if err := json.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			if !whole && h != nil {
				h.Cut = true
				return h, nil
			}
			return nil, fmt.Errorf("%w: line %d: %w", ErrBadHistory, number, err)
		}
		if h == nil {
			h, err = line.setup()
		} else {
			err = h.take(&line)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrBadHistory, number, err)
		}
		if !whole {
			return h, nil
		}
	}
}

// errLine says what is wrong with a line.
type errLine string

func (e errLine) Error() string { return string(e) }

func (l *historyLine) setup() (*History, error) {
	switch {
	case l.Type != "run":
		return nil, errLine(`it does not begin with {"type":"run"`)
	case l.Writers < 1 || l.Writers > maxWriters:
		return nil, errLine("number of writers")
	case l.Partitions < 1 || l.Partitions > maxPartitions:
		return nil, errLine("number of partitions")
	case len(l.Proxies) < 1 || len(l.Proxies) > maxProxies:
		return nil, errLine("number of proxies")
	}
	return newHistory(Setup{
		Run: l.Run, Topic: l.Topic, Proxies: l.Proxies,
		Partitions: l.Partitions, Writers: l.Writers, Seed: l.Seed,
	}), nil
}

// take adds a line to the history.
func (h *History) take(l *historyLine) error {
	if l.Partition < 0 || int(l.Partition) >= h.Partitions {
		return errLine("there is no such partition")
	}
	if max(l.Offset, l.Expected, l.Next) > maxOffset {
		return errLine("an offset that no log has")
	}
	switch l.Type {
	case "begin":
		log := &h.Logs[l.Partition]
		if l.Offset < 0 || len(log.Records) > 0 || log.Read {
			return errLine("begin of a log")
		}
		log.Begin = l.Offset
		return nil
	case "op":
		return h.takeOp(l)
	case "try":
		return h.takeTry(l)
	case "end":
		if l.Offset < 0 || l.Start < 0 || l.End < l.Start || int(l.Proxy) >= len(h.Proxies) {
			return errLine("read of an end")
		}
		h.Reads[l.Partition] = append(h.Reads[l.Partition], EndRead{l.Start, l.End, l.Offset, l.Proxy})
		return nil
	case "log":
		return h.takeLog(l)
	case "read":
		log := &h.Logs[l.Partition]
		if l.Offset != log.end() {
			return errLine(fmt.Sprintf("the log ends at %d, and its lines at %d", l.Offset, log.end()))
		}
		log.Read = true
		return nil
	}
	return errLine("a type that is not known")
}

func (h *History) takeOp(l *historyLine) error {
	if l.Writer < 0 || int(l.Writer) >= h.Writers || int(l.Op) != len(h.Ops[l.Writer]) {
		return errLine("a writer's appends are not numbered one after the other")
	}
	habit, err := ParseHabit(l.Habit)
	switch {
	case err != nil:
		return err
	case l.Records < 1 || l.Records > maxBatch:
		return errLine("number of records")
	case l.Expected < NoOffset || (l.Expected == NoOffset) != (habit == End):
		return errLine("expected offset")
	}
	if h.records += int(l.Records); h.records > maxRecords {
		return errLine("more records than can be checked")
	}
	h.Ops[l.Writer] = append(h.Ops[l.Writer], Op{
		Partition: l.Partition, Expected: l.Expected, Records: l.Records, Habit: habit,
	})
	return nil
}

func (h *History) takeTry(l *historyLine) error {
	op := h.op(AppendID{l.Writer, l.Op})
	if op == nil {
		return errLine("a try of no append")
	}
	t := Try{
		Start: l.Start, End: l.End, Offset: l.Offset, Next: l.Next, Proxy: l.Proxy, First: l.First, Records: l.Records, Code: l.Code,
	}
	if t.Records == 0 {
		t.Records = op.Records
	}
	var known bool
	t.Outcome, known = parseOutcome(l.Outcome)
	switch {
	case !known:
		return errLine("an outcome that is not known")
	case t.Start < 0 || t.End < t.Start:
		return errLine("moments of a try")
	case int(t.Proxy) >= len(h.Proxies):
		return errLine("a proxy that is not there")
	case int(t.First)+int(t.Records) > int(op.Records):
		return errLine("more records than the append has")
	case t.Outcome == OK && t.Offset < 0, t.Offset < NoOffset, t.Next < NoOffset:
		return errLine("offset of a try")
	}
	op.Tries = append(op.Tries, t)
	return nil
}

func (h *History) takeLog(l *historyLine) error {
	log := &h.Logs[l.Partition]
	if l.Offset != log.end() || log.Read {
		return errLine("lines of a log do not follow each other")
	}
	for _, name := range l.Names {
		var s Stored
		if name == "" {
			s.Missing = true
		} else if name != strangerName {
			name, s.Altered = strings.CutPrefix(name, alteredMark)
			s.Record, s.Known = parseShortName(name)
		}
		log.Records = append(log.Records, s)
	}
	return nil
}
