package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// ErrUnreadable means that the log could not be read.
var ErrUnreadable = errors.New("the log cannot be read")

// pollTime bounds a wait for records, after which progress is looked at.
const pollTime = 5 * time.Second

// logReader reads the partitions of a run from where they began.
type logReader struct {
	cfg  *Config
	run  string
	logs []PartitionLog
	told []Offset // ends that the log should reach
	ends []Offset // nil: none is known
	// until is when ends that are not there are asked for no longer, and settled tells
	// that they are not asked for again.
	until   time.Time
	settled bool
}

// readLogs reads each partition up to its end as of now. Ends before those that
// writers were told are asked for again, for as long as they have patience: a broker
// that does not know yet that it leads no more, or how far the log was committed
// before it led, tells less than there is.
func readLogs(ctx context.Context, cfg *Config, run string, begins, told []Offset) ([]PartitionLog, error) {
	r := &logReader{cfg: cfg, run: run, logs: make([]PartitionLog, len(begins)), told: told}
	for p, at := range begins {
		r.logs[p].Begin = at
	}
	progress := time.Now()
	for {
		before := r.records()
		err := r.attempt(ctx)
		if err == nil {
			return r.logs, nil
		}
		if r.records() > before || errors.Is(err, errBehind) {
			progress = time.Now()
		}
		if ctx.Err() != nil || time.Since(progress) > cfg.Wait || errors.Is(err, errDeleted) {
			return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		settle(ctx, preparePause)
	}
}

var (
	errDeleted  = errors.New("records of the run have been deleted")
	errNothing  = errors.New("no records come")
	errTopicEnd = errors.New("the end of a partition is not told")
	errBehind   = errors.New("a partition ends before what was told")
)

func (r *logReader) records() (n int) {
	for i := range r.logs {
		n += len(r.logs[i].Records)
	}
	return n
}

// attempt reads on with a client of its own, until all ends are reached or it has
// to be begun anew.
func (r *logReader) attempt(ctx context.Context) error {
	if err := r.findEnds(ctx); err != nil {
		return err
	}
	from := make(map[int32]kgo.Offset)
	for p := range r.logs {
		if at := r.logs[p].end(); at < r.ends[p] {
			from[int32(p)] = kgo.NewOffset().At(int64(at))
		}
		r.logs[p].Read = true
	}
	client, err := r.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.cfg.Topic: from}), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	for left := r.left(); left > 0; left = r.left() {
		poll, cancel := context.WithTimeout(ctx, pollTime)
		fetches := client.PollFetches(poll)
		cancel()
		got := r.records()
		fetches.EachRecord(r.take)
		if r.records() > got {
			continue
		}
		for _, e := range fetches.Errors() {
			return e.Err
		}
		return errNothing
	}
	return nil
}

func (r *logReader) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(r.cfg.ReadFrom...), kgo.Dialer(r.cfg.dial()), kgo.ClientID(clientID), kgo.RequestRetries(3),
		kgo.RetryTimeout(10*time.Second), kgo.MetadataMinAge(100*time.Millisecond))...)
}

// findEnds asks for the ends of all partitions, unless they are settled. It fails with
// errBehind while one may not be the true one.
func (r *logReader) findEnds(ctx context.Context) error {
	if r.settled {
		return nil
	}
	client, err := r.client()
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, r.cfg.Topic)
	if err != nil {
		return err
	}
	listed, err := admin.ListEndOffsets(ctx, r.cfg.Topic)
	if err != nil {
		return err
	}
	ends := make([]Offset, len(r.logs))
	for p := range ends {
		start, known := starts.Lookup(r.cfg.Topic, int32(p))
		end, ok := listed.Lookup(r.cfg.Topic, int32(p))
		if !ok || !known || end.Err != nil || start.Err != nil {
			return fmt.Errorf("%w: partition %d: %w", errTopicEnd, p, errors.Join(end.Err, start.Err))
		}
		if Offset(start.Offset) > r.logs[p].Begin {
			return fmt.Errorf("%w: partition %d begins at %d, and the run at %d", errDeleted, p, start.Offset, r.logs[p].Begin)
		}
		ends[p] = Offset(end.Offset)
	}
	if r.ends == nil {
		r.ends, r.until = ends, time.Now().Add(r.cfg.Patience)
	}
	// What was once committed stays so.
	for p, end := range ends {
		r.ends[p] = max(r.ends[p], end)
	}
	for p, end := range r.ends {
		if end < r.told[p] && time.Now().Before(r.until) {
			return fmt.Errorf("%w: partition %d at %d, and %d was told", errBehind, p, end, r.told[p])
		}
	}
	r.settled = true
	return nil
}

// left is how many partitions are not read to their end.
func (r *logReader) left() (n int) {
	for p := range r.logs {
		if r.logs[p].end() < r.ends[p] {
			n++
		}
	}
	return n
}

// take adds a record; one that is behind the end asked for came later and is left
// out.
func (r *logReader) take(record *kgo.Record) {
	l, at := &r.logs[record.Partition], Offset(record.Offset)
	if at < l.end() || at >= r.ends[record.Partition] {
		return
	}
	for l.end() < at {
		l.Records = append(l.Records, Stored{Missing: true})
	}
	s := Stored{Missing: record.Attrs.IsControl()}
	if !s.Missing {
		s.Record, s.Known = parseName(string(record.Value), r.run)
		s.Altered = s.Known && !asWritten(record)
	}
	l.Records = append(l.Records, s)
}

// asWritten tells whether a record of the run has what batchBuilder gives it besides
// its value: no key, a condition, and perhaps its name as an append-id.
func asWritten(record *kgo.Record) bool {
	headers := record.Headers
	if record.Key != nil || len(headers) == 0 || headers[0].Key != appender.HeaderExpectedOffset {
		return false
	}
	if expected := string(headers[0].Value); expected != "end" {
		if at, err := strconv.ParseInt(expected, 10, 64); err != nil || at < 0 {
			return false
		}
	}
	return len(headers) == 1 ||
		len(headers) == 2 && headers[1].Key == appender.HeaderAppendID && bytes.Equal(headers[1].Value, record.Value)
}
