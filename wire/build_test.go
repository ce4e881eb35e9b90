package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/big"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The builders here and the oracle below use kmsg, which knows the format
// independently of this package.

var codecNames = map[int8]string{
	CodecNone: "none", CodecGzip: "gzip", CodecSnappy: "snappy", CodecLZ4: "lz4", CodecZstd: "zstd",
}

const testFirstTimestamp = 1_700_000_000_000

// header is short for one record header; a nil value is null.
func header(key string, value []byte) kmsg.Header { return kmsg.Header{Key: key, Value: value} }

// recordsExpecting returns one record per value, each with that expected-offset.
func recordsExpecting(values ...string) []kmsg.Record {
	var records []kmsg.Record
	for _, v := range values {
		records = append(records, kmsg.Record{
			Key: []byte("k"), Value: []byte("some value"),
			Headers: []kmsg.Header{header("expected-offset", []byte(v))},
		})
	}
	return records
}

// encodeRecords numbers the records and returns them as one payload.
func encodeRecords(records []kmsg.Record) []byte {
	var payload []byte
	for i := range records {
		r := records[i]
		r.Length = 0
		r.OffsetDelta = int32(i)
		body := r.AppendTo(nil)[1:]
		payload = binary.AppendVarint(payload, int64(len(body)))
		payload = append(payload, body...)
	}
	return payload
}

// sealBatch returns a batch around a payload that is compressed already.
func sealBatch(payload []byte, attributes int16, records int32) []byte {
	b := kmsg.RecordBatch{
		Length: int32(49 + len(payload)), PartitionLeaderEpoch: -1, Magic: 2,
		Attributes: attributes, LastOffsetDelta: records - 1,
		FirstTimestamp: testFirstTimestamp, MaxTimestamp: testFirstTimestamp + 5,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: records, Records: payload,
	}
	return fixCRC(b.AppendTo(nil))
}

func fixCRC(batch []byte) []byte {
	sum := crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(batch[17:], sum)
	return batch
}

// buildBatch returns a batch of the records, compressed.
func buildBatch(tb testing.TB, codec int8, records []kmsg.Record) []byte {
	tb.Helper()
	return sealBatch(compress(tb, codec, encodeRecords(records)), int16(codec), int32(len(records)))
}

// storeBatch turns a client's batch into one as a broker stores it.
func storeBatch(batch []byte, baseOffset int64) []byte {
	stored := bytes.Clone(batch)
	binary.BigEndian.PutUint64(stored, uint64(baseOffset))
	binary.BigEndian.PutUint32(stored[12:], 7)
	return stored
}

func compress(tb testing.TB, codec int8, payload []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	var err error
	switch codec {
	case CodecNone:
		return payload
	case CodecGzip:
		w := gzip.NewWriter(&out)
		_, _ = w.Write(payload)
		err = w.Close()
	case CodecSnappy:
		return snappy.Encode(nil, payload)
	case CodecLZ4:
		w := lz4.NewWriter(&out)
		_, _ = w.Write(payload)
		err = w.Close()
	case CodecZstd:
		var w *zstd.Encoder
		if w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1)); err == nil {
			_, _ = w.Write(payload)
			err = w.Close()
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// xerial frames raw snappy blocks of at most blockSize bytes.
func xerial(payload []byte, blockSize int) []byte {
	out := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(payload) > 0 {
		n := min(blockSize, len(payload))
		block := snappy.Encode(nil, payload[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		payload = payload[n:]
	}
	return out
}

// decodeRecords reads a payload by kmsg alone; ok is false if it cannot.
func decodeRecords(payload []byte) (records []kmsg.Record, ok bool) {
	for len(payload) > 0 {
		length, n := binary.Varint(payload)
		if n <= 0 || length < 0 || length > int64(len(payload)-n) {
			return nil, false
		}
		var r kmsg.Record
		if r.ReadFrom(payload[:n+int(length)]) != nil {
			return nil, false
		}
		records = append(records, r)
		payload = payload[n+int(length):]
	}
	return records, true
}

// sameContent compares what a digest covers.
func sameContent(a, b kmsg.Record) bool {
	if !sameNullable(a.Key, b.Key) || !sameNullable(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !sameNullable(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

func sameNullable(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// verdict is what the oracle says of a batch.
type verdict struct {
	kind       Kind
	expected   int64
	fault      RecordError // zero: none
	allID, any bool
}

// naiveExpected reads an expected-offset in the most literal way.
func naiveExpected(v []byte, encoding Encoding) (kind Kind, offset int64, fault RecordFault) {
	limit := new(big.Int).SetUint64(math.MaxInt64)
	number, digits := new(big.Int).SetBytes(v), true
	if encoding == EncodingDecimal {
		digits = len(bytes.Trim(v, "0123456789")) == 0
		number, _ = new(big.Int).SetString("0"+string(v), 10)
	}
	switch {
	case len(v) == 0:
		fault = FaultEmpty
	case string(v) == "end":
		kind = AtEnd
	case encoding == EncodingInt64 && len(v) != 8:
		fault = FaultNotInt64
	case encoding == EncodingInt64 && v[0] >= 0x80:
		fault = FaultNegative
	case encoding == EncodingDecimal && (v[0] == '-' || v[0] == '+'):
		fault = FaultSign
	case !digits:
		fault = FaultNotDecimal
	case encoding == EncodingDecimal && len(v) > 19 || number.Cmp(limit) >= 0:
		fault = FaultTooLarge
	default:
		kind, offset = Conditional, number.Int64()
	}
	return kind, offset, fault
}

// naiveVerdict judges a batch's headers in the most literal way: the first
// prefix of the batch that breaks a rule names the fault.
func naiveVerdict(records []kmsg.Record, encoding Encoding) verdict {
	values := func(r kmsg.Record, name string) (vs [][]byte) {
		for _, h := range r.Headers {
			if h.Key == name {
				vs = append(vs, h.Value)
			}
		}
		return vs
	}
	var out verdict
	for n := 1; n <= len(records) && out.fault.Reason == 0; n++ {
		without, with := -1, 0
		for i, r := range records[:n] {
			if len(values(r, "expected-offset")) > 0 {
				with++
			} else if without < 0 {
				without = i
			}
		}
		report := func(i int, f RecordFault) { out.fault = RecordError{i, f, "expected-offset"} }
		if with == 0 {
			continue
		}
		if without >= 0 {
			report(without, FaultMissing)
			continue
		}
		last := n - 1
		vs := values(records[last], "expected-offset")
		kind, offset, fault := naiveExpected(vs[0], encoding)
		switch {
		case len(vs) > 1:
			report(last, FaultTwice)
		case fault != 0:
			report(last, fault)
		case n == 1:
			out.kind, out.expected = kind, offset
		case kind != out.kind:
			report(last, FaultMixed)
		case kind == Conditional && uint64(offset) != uint64(out.expected)+uint64(last):
			report(last, FaultNotConsecutive)
		}
	}
	out.allID = true
	var malformed, absent *RecordError
	for i, r := range records {
		vs := values(r, "append-id")
		out.any = out.any || len(vs) > 0
		out.allID = out.allID && len(vs) == 1 && len(vs[0]) > 0
		switch {
		case len(vs) == 0 && absent == nil:
			absent = &RecordError{i, FaultMissing, "append-id"}
		case len(vs) > 1 && malformed == nil:
			malformed = &RecordError{i, FaultTwice, "append-id"}
		case len(vs) == 1 && len(vs[0]) == 0 && malformed == nil:
			malformed = &RecordError{i, FaultEmpty, "append-id"}
		}
	}
	if out.fault.Reason == 0 && out.kind != Unconditional {
		if malformed != nil {
			out.fault = *malformed
		} else if out.any && absent != nil {
			out.fault = *absent
		}
	}
	return out
}
