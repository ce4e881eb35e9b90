package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// attackTimeout is what writers under attack ask brokers for. Half of it a proxy
// may hold them.
const attackTimeout = 1500 * time.Millisecond

// habit is how a writer goes about its records.
type habit int

const (
	once        habit = iota // each has a condition and is sent once
	insisting                // it has an append-id too, and is sent again through any proxy until its fate is known
	sequenced                // it has the sequence of an idempotent producer, and is sent again through the same proxy
	ending                   // it says "end", and is sent once
	anyhow                   // it says nothing, and is sent once
	remembering              // it says nothing, has a sequence, and is sent again through the same proxy
	habits
)

func (h habit) String() string {
	return [...]string{"once", "insisting", "sequenced", "ending", "anyhow", "remembering"}[h]
}

// attackTries is how often a writer that insists sends a record before it gives up.
const attackTries = 40

// attacked is what a partition's writers were told.
type attacked struct {
	topic string

	mu            sync.Mutex
	attempts      []attempt
	transmissions int
	end           int64 // known
}

func (a *attacked) add(one attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = append(a.attempts, one)
	if one.outcome == won {
		a.end = max(a.end, one.offset+1)
	}
}

func (a *attacked) sent(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.transmissions += n
}

func (a *attacked) knownEnd() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end
}

// attackWriter is one writer of a record at a time.
type attackWriter struct {
	log   *attacked
	id    int
	habit habit
	// bootstraps are the proxies', and at is which of them it goes through.
	bootstraps []string
	at         int
	conn       *rawConn

	written            int
	producer, sequence int64
}

func (w *attackWriter) run(ctx context.Context) error {
	defer w.hangUp()
	next := int64(0)
	for ctx.Err() == nil {
		w.written++
		a := attempt{writer: w.id, value: fmt.Sprintf("%v-%d-%d", w.habit, w.id, w.written), expected: next}
		record := conditional(next, a.value)
		switch w.habit {
		case insisting:
			record = identified(record, a.value)
		case ending:
			a.anywhere, record.headers[0].value = true, "end"
		case anyhow, remembering:
			a.anywhere, record.headers = true, nil
		}
		a, following, err := w.write(ctx, a, encodeBatch(record))
		if err != nil {
			return fmt.Errorf("%s: %w", a.value, err)
		}
		w.log.add(a)
		switch next = max(following, w.log.knownEnd()); a.outcome {
		case unknown, notWritten, notReached:
			pause(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// write sends one record, perhaps again, and says what its writer knows at last.
func (w *attackWriter) write(ctx context.Context, a attempt, batch []byte) (attempt, int64, error) {
	repeats := w.habit == insisting || w.habit == sequenced || w.habit == remembering
	if w.habit == sequenced || w.habit == remembering {
		if w.producer == 0 {
			w.producer, w.sequence = time.Now().UnixNano()>>8, 0
		}
		binary.BigEndian.PutUint64(batch[43:], uint64(w.producer))
		binary.BigEndian.PutUint16(batch[51:], 0)
		binary.BigEndian.PutUint32(batch[53:], uint32(w.sequence))
		setCRC(batch)
	}
	doubt := false // an earlier transmission may be in the log
	for try := 1; ; try++ {
		said, following, sent, err := w.transmit(a, batch)
		if err != nil {
			return a, a.expected, err
		}
		if sent {
			w.log.sent(1)
		}
		switch said.outcome {
		case won, taken:
			w.sequence++
			if said.outcome == taken {
				w.producer = 0
			}
			return said, following, nil
		}
		w.hangUp()
		doubt = doubt || sent && said.outcome == unknown
		over := !repeats || try == attackTries || said.outcome == notReached && !doubt
		if w.producer != 0 && errors.Is(said.code, kerr.OutOfOrderSequenceNumber) {
			over = true // the proxy has forgotten it
		}
		if over {
			w.producer = 0
			if doubt {
				said.outcome = unknown
			}
			return said, following, nil
		}
		if w.habit == insisting {
			w.at++
		}
		pause(context.WithoutCancel(ctx), time.Duration(min(try, 10))*20*time.Millisecond)
	}
}

// transmit sends a batch once.
func (w *attackWriter) transmit(a attempt, batch []byte) (said attempt, following int64, sent bool, err error) {
	a.outcome = notWritten
	if w.conn == nil && !w.connect() {
		return a, a.expected, false, nil
	}
	request := produceRequest(w.log.topic, 0, batch)
	request.TimeoutMillis = int32(attackTimeout.Milliseconds())
	answers, err := w.conn.produceParts(request)
	if err != nil {
		a.outcome, a.answer = unknown, err.Error()
		return a, a.expected, true, nil
	}
	answer := answers[0]
	code := kerr.ErrorForCode(answer.ErrorCode)
	if !a.anywhere && !errors.Is(code, kerr.OutOfOrderSequenceNumber) {
		said, following, err = judge(a, answer)
		return said, following, true, err
	}
	a.code, a.answer = code, fmt.Sprintf("code %d", answer.ErrorCode)
	switch {
	case code == nil:
		a.outcome, a.offset = won, answer.BaseOffset
	case errors.Is(code, kerr.UnknownServerError):
		a.outcome = unknown
	case errors.Is(code, kerr.OutOfOrderSequenceNumber), kerr.IsRetriable(code):
	default:
		err = fmt.Errorf("%w: %s", errUnexpected, a.answer)
	}
	return a, a.expected, true, err
}

func (w *attackWriter) connect() bool {
	w.conn = findLeader(w.bootstraps[w.at%len(w.bootstraps)], w.log.topic)
	return w.conn != nil
}

func (w *attackWriter) hangUp() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

// franzWriter is a real client, idempotent and without conditions, that pipelines.
func (a *attacked) franzWriter(ctx context.Context, id int, bootstrap string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(a.topic),
		kgo.ProduceRequestTimeout(attackTimeout), kgo.MaxBufferedRecords(8), kgo.ProducerBatchMaxBytes(512),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("franz-%d-%d", id, n)
		client.Produce(context.WithoutCancel(ctx), &kgo.Record{Value: []byte(value)}, func(r *kgo.Record, err error) {
			one := attempt{writer: id, value: value, anywhere: true, outcome: won, offset: r.Offset}
			if err != nil {
				one.outcome, one.answer = unknown, err.Error()
			}
			a.sent(1)
			a.add(one)
		})
		pause(ctx, 5*time.Millisecond)
	}
	return client.Flush(context.WithoutCancel(ctx))
}
