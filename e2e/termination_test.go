package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// terminate asks the process to end, and waits until it has, in order.
func (p *proxyProcess) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		p.cmd = nil
	case <-limit.C:
		t.Error("the proxy did not end within 30 s of SIGTERM")
	}
}

// streamDepth is how many requests a stream has unanswered.
const streamDepth = 5

// stream writes records to a partition that nobody else writes to, several requests at
// once: the one with number i must get offset i.
type stream struct {
	topic       string
	partition   int32
	conditional bool
	answered    int64        // requests
	appended    atomic.Int64 // the same, for others to see
}

func (s *stream) value(i int64) string { return fmt.Sprintf("%s/%d-%d", s.topic, s.partition, i) }

// run goes on from what was answered, up to a number of records, or until the
// connection ends, which is no error.
func (s *stream) run(address string, until int64) error {
	conn, err := dialRaw(address)
	if err != nil {
		return err
	}
	unanswered := make(chan *kmsg.ProduceRequest, streamDepth) // from the sender, which closes it
	ended := make(chan struct{})                               // closed when nothing more is read
	var sending sync.WaitGroup
	defer sending.Wait()
	defer conn.close()
	defer close(ended)
	sending.Go(func() {
		defer close(unanswered)
		for i := s.answered; i < until; i++ {
			record := rawRecord{value: s.value(i)}
			if s.conditional {
				record = conditional(i, s.value(i))
			}
			request := produceRequest(s.topic, s.partition, encodeBatch(record))
			select {
			case unanswered <- request:
			case <-ended:
				return
			}
			if _, err := conn.Write(conn.frame(request)); err != nil {
				return
			}
		}
	})
	correlation := int32(0)
	for request := range unanswered {
		_ = conn.SetReadDeadline(time.Now().Add(rawTimeout))
		frame, err := readFrame(conn)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case err != nil:
			return nil // what is not answered must not have been sent
		}
		correlation++
		if got := int32(binary.BigEndian.Uint32(frame)); got != correlation {
			return fmt.Errorf("%w: %d, want %d", errWrongCorrelation, got, correlation)
		}
		response, err := decodeAnswer(request, frame[4:])
		if err != nil {
			return err
		}
		answer := response.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if answer.ErrorCode != 0 || answer.BaseOffset != s.answered {
			return fmt.Errorf("%s: told %+v, want offset %d", s.value(s.answered), toldOf(answer), s.answered)
		}
		s.answered++
		s.appended.Store(s.answered)
	}
	return nil
}

// TestNothingInFlightIsLostOnATermination ends one of two proxies while requests are
// in flight. Each is answered, or was never sent: whoever repeats what was not answered
// at the other proxy writes nothing twice, with a condition and without.
func TestNothingInFlightIsLostOnATermination(t *testing.T) {
	needsFence(t)
	const free, fenced, waited, partitions = "ended-free", "ended-fenced", "ended-empty", 6
	const more = 20 // records of each stream through the other proxy
	first, second := startProxy(t, "--require", fenced), startProxy(t, "--require", fenced)
	admin := adminAt(t, first.bootstrap)
	for _, topic := range []string{free, fenced} {
		createTopic(t, admin, topic, partitions)
	}
	createTopic(t, admin, waited, 1)
	// A request for which the broker takes its time.
	poll := kmsg.NewPtrFetchRequest()
	poll.Version, poll.MaxWaitMillis, poll.MinBytes, poll.MaxBytes = 12, 1_000, 1, 1<<20
	topic, partition := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	partition.PartitionMaxBytes = 1 << 20
	topic.Topic, topic.Partitions = waited, append(topic.Partitions, partition)
	poll.Topics = append(poll.Topics, topic)
	waiting, err := dialRaw(leaderAddresses(t, first, waited)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.close()
	polled := make(chan error, 1) // one send
	if _, err := waiting.Write(waiting.frame(poll)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := waiting.answer()
		polled <- err
	}()

	var streams []*stream
	for partition := range int32(partitions) {
		streams = append(streams, &stream{topic: free, partition: partition}, &stream{topic: fenced, partition: partition, conditional: true})
	}
	var group sync.WaitGroup
	for _, s := range streams {
		at := leaderAddresses(t, first, s.topic)[s.partition]
		group.Go(func() {
			if err := s.run(at, 1<<30); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "all streams run", 30*time.Second, func() error {
		for _, s := range streams {
			if n := s.appended.Load(); n < 3*streamDepth && !t.Failed() {
				return fmt.Errorf("%s/%d: %d", s.topic, s.partition, n)
			}
		}
		return nil
	})
	first.terminate(t)
	group.Wait()
	if err := <-polled; err != nil {
		t.Errorf("a Fetch in flight: %v", err)
	}
	if conn, err := net.Dial("tcp", first.bootstrap); err == nil {
		_ = conn.Close()
		t.Error("a proxy that has ended takes connections")
	}
	for _, s := range streams {
		at, until := leaderAddresses(t, second, s.topic)[s.partition], s.answered+more
		group.Go(func() {
			if err := s.run(at, until); err != nil {
				t.Error(err)
			} else if s.answered != until {
				t.Errorf("%s/%d: %d of %d answered", s.topic, s.partition, s.answered, until)
			}
		})
	}
	group.Wait()
	for _, s := range streams {
		log := readLog(t, s.topic, s.partition)
		if int64(len(log)) != s.answered {
			t.Errorf("%s/%d: %d records, %d answered", s.topic, s.partition, len(log), s.answered)
		}
		for i, record := range log {
			if want := (logRecord{int64(i), s.value(int64(i))}); record != want {
				t.Errorf("%s/%d holds %v, want %v", s.topic, s.partition, record, want)
				break
			}
		}
	}
}
