package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	codecs = map[string]kgo.CompressionCodec{
		"lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(), "zstd": kgo.ZstdCompression(),
	}
	compressedShape = batchShape{records: 1000, valueBytes: 100}
	errIncompressed = errors.New("a batch does not get smaller by compression")
)

// compressedMeasure is what batches cost that a fence must decompress.
func compressedMeasure(codec string) measure {
	name := "cond-" + codec
	return measure{
		name: name,
		about: fmt.Sprintf("processor time for a %s batch of %d conditional records of %d bytes, one in flight: to decompress it and no more, of the proxy without a rule, and with one",
			codec, compressedShape.records, compressedShape.valueBytes),
		setUp: func(ctx context.Context, r *run) ([]way, error) { return setUpCompressed(ctx, r, name, codecs[codec]) },
	}
}

func setUpCompressed(ctx context.Context, r *run, name string, codec kgo.CompressionCodec) ([]way, error) {
	ways := []way{{name: "decompression", sample: func(context.Context, int) (sample, error) { return sampleDecompression(codec, r.seconds) }}}
	for _, t := range r.fencing() {
		unfenced, fenced := r.prefix+"-"+name+"-"+t.name, r.topicFor(name, t)
		for _, topic := range []string{unfenced, fenced} {
			if err := r.makeTopic(ctx, topic, 1); err != nil {
				return nil, err
			}
		}
		ways = append(ways,
			way{name: t.name + "-unfenced", sample: func(ctx context.Context, _ int) (sample, error) {
				return sampleCompressed(ctx, r, t, unfenced, codec)
			}},
			way{name: t.name, target: t, sample: func(ctx context.Context, _ int) (sample, error) {
				return sampleCompressed(ctx, r, t, fenced, codec)
			}})
	}
	return ways, nil
}

// compressor makes compressed batches of which each is another.
type compressor struct {
	codec   kgo.Compressor
	records []byte
	holders [][]byte // in records
	marks   [][]byte
	out     bytes.Buffer
}

func newCompressor(codec kgo.CompressionCodec) (*compressor, error) {
	c, err := kgo.DefaultCompressor(codec)
	if err != nil {
		return nil, err
	}
	records := conditionalRecords(compressedShape)
	holders, marks := patchable(records, compressedShape)
	return &compressor{codec: c, records: records, holders: holders, marks: marks}, nil
}

// compress gives the records that expect an offset, valid until the next call.
func (c *compressor) compress(at offset) ([]byte, kgo.CompressionCodecType, error) {
	patch(c.holders, c.marks, at, mark{writer: 1, count: uint64(at)})
	c.out.Reset()
	compressed, codec := c.codec.Compress(&c.out, c.records)
	if codec == kgo.CodecNone || len(compressed) >= len(c.records) {
		return nil, codec, errIncompressed
	}
	return compressed, codec, nil
}

// sampleDecompression decompresses one batch again and again into pooled memory.
func sampleDecompression(codec kgo.CompressionCodec, lasts time.Duration) (sample, error) {
	c, err := newCompressor(codec)
	if err != nil {
		return nil, err
	}
	compressed, codecType, err := c.compress(0)
	if err != nil {
		return nil, err
	}
	pool := &oneBuffer{}
	decompressor := kgo.DefaultDecompressor(pool)
	times, begun := 0, time.Now()
	for ; time.Since(begun) < lasts/2 || times == 0; times++ {
		raw, err := decompressor.Decompress(compressed, codecType)
		if err != nil {
			return nil, err
		}
		if len(raw) != len(c.records) {
			return nil, fmt.Errorf("%w: %d bytes became %d", errIncompressed, len(c.records), len(raw))
		}
		pool.buffer = raw
	}
	return sample{
		{"CPU", "µs/request", lower, micros(time.Since(begun)) / float64(times)},
		{"batch", "KiB", lower, float64(len(compressed)) / (1 << 10)},
	}, nil
}

// oneBuffer lends one buffer, as what is decompressed is used up at once.
type oneBuffer struct{ buffer []byte }

// GetDecompressBytes lends the buffer.
func (b *oneBuffer) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return b.buffer[:0] }

// PutDecompressBytes takes it back.
func (b *oneBuffer) PutDecompressBytes(buffer []byte) { b.buffer = buffer }

// sampleCompressed appends batches, one in flight.
func sampleCompressed(ctx context.Context, r *run, t *target, topic string, codec kgo.CompressionCodec) (sample, error) {
	c, err := newCompressor(codec)
	if err != nil {
		return nil, err
	}
	conn, err := dialAppend(ctx, t)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	next, err := conn.end(newEndRequest(topic, 0))
	if err != nil {
		return nil, err
	}
	m, err := t.meter()
	if err != nil {
		return nil, err
	}
	batches, begun := 0, time.Now()
	for ; time.Since(begun) < r.seconds || batches == 0; batches++ {
		compressed, codecType, err := c.compress(next)
		if err != nil {
			return nil, err
		}
		batch := recordBatch(compressed, compressedShape.records, int16(codecType))
		if _, err := conn.conn.Write(produceRequest(topic, 0, batch)); err != nil {
			return nil, err
		}
		answer, err := conn.acknowledgement()
		if err == nil {
			err = answer.err(next)
		}
		if err != nil {
			return nil, fmt.Errorf("batch for offset %d of %s: %w", next, topic, err)
		}
		if answer.base != next {
			return nil, fmt.Errorf("%w: %s: asked for %d, got %d", errElsewhere, topic, next, answer.base)
		}
		next += offset(compressedShape.records)
	}
	took := time.Since(begun)
	used, err := m.used()
	if err != nil {
		return nil, err
	}
	if err := r.empty(ctx, topic); err != nil {
		return nil, err
	}
	used1 := used.perRequest(int64(batches))
	return append(used1, figure{"rate", "batches/s", higher, float64(batches) / took.Seconds()}), nil
}
