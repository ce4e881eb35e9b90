package verify

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"sync"
)

const (
	recorderBuffer = 1 << 20
	// logLineRecords is how many records a line of the log has at most.
	logLineRecords = 200
)

// recorder writes a history. For concurrent use; the lines of one append must
// come from one goroutine. flush gives the first error.
type recorder struct {
	mu  sync.Mutex
	out *bufio.Writer
	err error
}

func newRecorder(out io.Writer) *recorder {
	return &recorder{out: bufio.NewWriterSize(out, recorderBuffer)}
}

// write takes whole lines.
func (r *recorder) write(lines []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		_, r.err = r.out.Write(lines)
	}
}

// flush writes what is buffered, and gives the first error of all.
func (r *recorder) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.out.Flush()
	}
	return r.err
}

func (r *recorder) setup(s Setup) {
	line, err := json.Marshal(struct {
		Type       string   `json:"type"`
		Run        string   `json:"run"`
		Topic      string   `json:"topic"`
		Proxies    []string `json:"proxies"`
		Partitions int      `json:"partitions"`
		Writers    int      `json:"writers"`
		Seed       uint64   `json:"seed"`
	}{"run", s.Run, s.Topic, s.Proxies, s.Partitions, s.Writers, s.Seed})
	if err != nil {
		panic(err) // strings and numbers only
	}
	r.write(append(line, '\n'))
}

// field appends ,"name":n.
func field(dst []byte, name string, n int64) []byte {
	dst = append(append(append(dst, ',', '"'), name...), '"', ':')
	return strconv.AppendInt(dst, n, 10)
}

func lineOf(dst []byte, kind string) []byte {
	return append(append(append(dst, `{"type":"`...), kind...), '"')
}

func appendBegin(dst []byte, p Partition, at Offset) []byte {
	dst = field(lineOf(dst, "begin"), "partition", int64(p))
	return append(field(dst, "offset", int64(at)), "}\n"...)
}

func appendOp(dst []byte, id AppendID, op *Op) []byte {
	dst = field(lineOf(dst, "op"), "writer", int64(id.Writer))
	dst = field(dst, "op", int64(id.Number))
	dst = field(dst, "partition", int64(op.Partition))
	dst = append(append(append(dst, `,"habit":"`...), op.Habit.String()...), '"')
	if op.Expected != NoOffset {
		dst = field(dst, "expected", int64(op.Expected))
	}
	return append(field(dst, "records", int64(op.Records)), "}\n"...)
}

func appendTry(dst []byte, id AppendID, op *Op, t *Try) []byte {
	dst = field(lineOf(dst, "try"), "writer", int64(id.Writer))
	dst = field(dst, "op", int64(id.Number))
	dst = field(dst, "proxy", int64(t.Proxy))
	if t.Records != op.Records {
		dst = field(field(dst, "first", int64(t.First)), "records", int64(t.Records))
	}
	dst = field(field(dst, "start", int64(t.Start)), "end", int64(t.End))
	dst = append(append(append(dst, `,"outcome":"`...), t.Outcome.String()...), '"')
	if t.Offset != NoOffset {
		dst = field(dst, "offset", int64(t.Offset))
	}
	if t.Next != NoOffset {
		dst = field(dst, "next", int64(t.Next))
	}
	if t.Code != 0 {
		dst = field(dst, "code", int64(t.Code))
	}
	return append(dst, "}\n"...)
}

func appendEndRead(dst []byte, p Partition, e EndRead) []byte {
	dst = field(lineOf(dst, "end"), "partition", int64(p))
	dst = field(dst, "proxy", int64(e.Proxy))
	dst = field(field(dst, "start", int64(e.Start)), "end", int64(e.End))
	return append(field(dst, "offset", int64(e.Offset)), "}\n"...)
}

// log writes a partition's log.
func (r *recorder) log(p Partition, l *PartitionLog) {
	var line []byte
	for from := 0; from < len(l.Records); from += logLineRecords {
		line = field(lineOf(line[:0], "log"), "partition", int64(p))
		line = append(field(line, "offset", int64(l.Begin)+int64(from)), `,"names":[`...)
		for i, s := range l.Records[from:min(from+logLineRecords, len(l.Records))] {
			if i > 0 {
				line = append(line, ',')
			}
			line = append(line, '"')
			switch {
			case s.Known:
				if s.Altered {
					line = append(line, alteredMark...)
				}
				line = appendShortName(line, s.Record)
			case !s.Missing:
				line = append(line, strangerName...)
			}
			line = append(line, '"')
		}
		r.write(append(line, "]}\n"...))
	}
	line = field(lineOf(line[:0], "read"), "partition", int64(p))
	r.write(append(field(line, "offset", int64(l.end())), "}\n"...))
}

// strangerName stands for a record whose value is no name of the run; an offset
// without a record has the empty name.
const strangerName = "?"

// alteredMark stands before the name of a record whose key or headers are not those
// that it was sent with.
const alteredMark = "!"
