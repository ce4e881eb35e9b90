package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// twinLog keeps what became of the copies that a relay sent of clients' requests,
// of which the clients know nothing.
type twinLog struct {
	mu  sync.Mutex
	all []twin
}

// twin is one such copy, as a transmission in a history of verify.
type twin struct {
	Type    string `json:"type"`
	Writer  int64  `json:"writer"`
	Op      int64  `json:"op"`
	First   int    `json:"first"`
	Records int    `json:"records"`
	Start   int64  `json:"start"` // ns; the append's own first transmission is not later
	End     int64  `json:"end"`
	Outcome string `json:"outcome"`
	Offset  *int64 `json:"offset,omitempty"`
	Next    *int64 `json:"next,omitempty"`
	Code    int16  `json:"code,omitempty"`
}

// provenName is the value of a record: its writer, append and place.
var provenName = regexp.MustCompile(`verify/[^/]+/(\d+)/(\d+)/(\d+)`)

// add is mischief's answered.
func (l *twinLog) add(frame, answer []byte) {
	names := provenName.FindAllSubmatch(frame, -1)
	if len(names) == 0 {
		return // not one of verify's
	}
	places := map[string]bool{} // append-ids are names too
	for _, name := range names {
		places[string(name[3])] = true
	}
	one := twin{Type: "try", Records: len(places), Outcome: "unknown", End: math.MaxInt64}
	one.Writer, one.Op = number(names[0][1]), number(names[0][2])
	one.First = int(number(names[0][3]))
	one.judge(frame, answer)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

func number(digits []byte) int64 {
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return n
}

// judge reads the answer. What it does not understand stays unknown.
func (w *twin) judge(frame, answer []byte) {
	if len(answer) < 8 {
		return
	}
	request := kbin.Reader{Src: frame[4:]}
	request.Int16()
	response := kmsg.NewPtrProduceResponse()
	response.Version = request.Int16()
	body := answer[8:]
	if response.IsFlexible() && len(body) > 0 {
		body = body[1:]
	}
	if response.ReadFrom(body) != nil || len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return
	}
	said := response.Topics[0].Partitions[0]
	message := ""
	if said.ErrorMessage != nil {
		message = *said.ErrorMessage
	}
	w.Code = said.ErrorCode
	parts := refusal.FindStringSubmatch(message)
	switch {
	case said.ErrorCode == 0:
		w.Outcome, w.Offset = "ok", &said.BaseOffset
	case said.ErrorCode == -1:
	case parts != nil:
		next := number([]byte(parts[3]))
		w.Next, w.Outcome = &next, "taken"
		if parts[1] == "not reached" {
			w.Outcome = "not_reached"
		}
	default:
		w.Outcome = "refused"
	}
}

// merge writes a history to which the twins are added, each behind its append.
func (l *twinLog) merge(history, merged string) (added int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byAppend := map[[2]int64][]twin{}
	for _, one := range l.all {
		key := [2]int64{one.Writer, one.Op}
		byAppend[key] = append(byAppend[key], one)
	}
	from, err := os.Open(history)
	if err != nil {
		return 0, err
	}
	defer func() { _ = from.Close() }()
	to, err := os.Create(merged)
	if err != nil {
		return 0, err
	}
	defer func() { _ = to.Close() }()
	lines, out := bufio.NewReaderSize(from, 1<<20), bufio.NewWriterSize(to, 1<<20)
	// An append's twins follow its own first try, whose time they have.
	for {
		line, err := lines.ReadBytes('\n')
		if _, err := out.Write(line); err != nil {
			return added, err
		}
		if bytes.HasPrefix(line, []byte(`{"type":"try"`)) {
			var try twin
			if err := json.Unmarshal(line, &try); err != nil {
				return added, fmt.Errorf("%s: %w", history, err)
			}
			key := [2]int64{try.Writer, try.Op}
			for _, one := range byAppend[key] {
				one.Start = try.Start
				text, err := json.Marshal(one)
				if err != nil {
					return added, err
				}
				if _, err := out.Write(append(text, '\n')); err != nil {
					return added, err
				}
				added++
			}
			delete(byAppend, key)
		}
		if err == io.EOF {
			return added, out.Flush()
		} else if err != nil {
			return added, err
		}
	}
}
