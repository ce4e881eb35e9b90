package proxy

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// FuzzFencedConnection sends one Produce request of any bytes and a request
// behind it through a proxy before a plausible broker. The second is answered,
// in order, or the connection is closed; nothing hangs, panics or stays. With
// whole unset, the bytes are one batch for a fenced partition, whose length and
// checksum are made to fit.
func FuzzFencedConnection(f *testing.F) {
	const fenced, free = "fenced", "free"
	for version := int16(0); version <= 13; version++ {
		for _, acks := range []int16{-1, 0, 1} {
			request := produceOf(version, acks,
				part{topic: free, id: [16]byte{15: 2}, records: plain("x")},
				part{topic: fenced, id: [16]byte{15: 1}, records: conditional(0, "a", "b")},
				part{topic: fenced, id: [16]byte{15: 1}, partition: 1, records: identified(5, "c")},
				part{topic: fenced, id: [16]byte{15: 7}, partition: -1, records: plain("d")},
				part{topic: "fenced-none", records: conditional(0, "e")})
			f.Add(byte(version), true, request.AppendTo(nil))
		}
	}
	for _, batch := range [][]byte{
		conditional(0, "a"), conditional(3, "b", "c"), identified(0, "d"), plain("e"),
		batchOf(batchOptions{}, record{expected: "end"}), batchOf(batchOptions{attributes: 1}, record{expected: "0"}),
		batchOf(batchOptions{timestamp: -1}, record{expected: "0"}), batchOf(batchOptions{maxTime: 1 << 62}, record{expected: "0"}),
		batchOf(batchOptions{timestamp: 1 << 62}, record{expected: "0"}),
	} {
		f.Add(byte(9), false, batch)
	}
	l := newLeader(f, fenced, free)
	l.lenient = true
	r := newFencedRig(f, Config{MaxDecompressedBytes: 1 << 20, Dial: dialAbruptly}, l)
	f.Fuzz(func(t *testing.T, version byte, whole bool, data []byte) {
		version %= 14
		// The broker is as good as new, and nothing is known of it.
		l.change(func() { l.topics[fenced], l.topics[free] = newTopicLog(1), newTopicLog(2) })
		if err := r.fencing.forgetAll(); err != nil {
			t.Fatal(err)
		}
		conn, err := dialAbruptly(t.Context(), "tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(append(fuzzFrame(version, whole, data), kafkatest.RequestFrame(2, listGroups())...)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(seamPatience))
		for last := uint32(0); last != 2; {
			var head [8]byte
			_, err := io.ReadFull(conn, head[:])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("neither answered nor closed")
			}
			if err != nil {
				break
			}
			id := binary.BigEndian.Uint32(head[4:])
			if id <= last || id > 2 {
				t.Fatalf("got an answer to %d after %d", id, last)
			}
			last = id
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
				break
			}
		}
		_ = conn.Close()
		await(t, "the connection is gone", func() bool { return r.metrics.open.Load() == 0 })
		await(t, "every lane is without users", func() bool { return !r.busy() })
		// Whatever the bytes were: what stands in a fenced topic was stamped.
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.topics[fenced].partitions {
			if len(p.batches) > 0 && !p.has {
				t.Error("got a batch appended to a fenced topic that is not the fence's")
			}
		}
	})
}

// forgetAll drops the lanes and all that is known of idle partitions.
func (f *fencing) forgetAll() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, l := range f.lanes {
		l.mu.Lock()
		l.closeLocked()
		l.mu.Unlock()
		delete(f.lanes, key)
	}
	f.idle, err = ps.NewCache(100, 100, nil)
	return err
}

// fuzzFrame is a whole Produce request frame with correlation id 1.
func fuzzFrame(version byte, whole bool, data []byte) []byte {
	if !whole {
		batch := append([]byte(nil), data...)
		if len(batch) >= 61 {
			binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoliTable))
		}
		return kafkatest.RequestFrame(1, produceOf(int16(version), -1, part{topic: "fenced", id: [16]byte{15: 1}, records: batch}))
	}
	request := kmsg.NewPtrProduceRequest()
	request.Version = int16(version)
	frame := kafkatest.RequestFrame(1, request)
	frame = append(frame[:len(frame)-len(request.AppendTo(nil))], data...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}
