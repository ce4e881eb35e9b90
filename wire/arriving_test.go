package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceFrame puts a header before the body of a Produce.
func produceFrame(body []byte, version int16) []byte {
	frame := []byte{0, 0, byte(version >> 8), byte(version), 0, 0, 0, 7, 0, 2, 'm', 'e'}
	if version >= produceFlexible {
		frame = append(frame, 0)
	}
	return append(frame, body...)
}

// lookInPieces shows a frame, which comes up to each of these ends.
func lookInPieces(a *Arriving, frame []byte, ends []int) {
	a.Reset()
	for _, end := range append(ends, len(frame)) {
		a.Look(frame[:min(end, len(frame))])
	}
}

// checkSums tells a parsed request its sums, which must be right, and counts them.
func checkSums(t interface{ Fatalf(string, ...any) }, a *Arriving, p *Produce, bodyOffset int) (summed int) {
	a.Tell(p, bodyOffset)
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if !part.summed {
			continue
		}
		summed++
		if want := batchChecksum(part.Records); part.sum != want {
			t.Fatalf("partition %d: got sum %08x, want %08x", i, part.sum, want)
		}
	}
	return summed
}

// However a request comes in pieces, each batch is summed, and rightly.
func TestArrivingSumsEachBatch(t *testing.T) {
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			var a Arriving
			rapid.Check(t, func(t *rapid.T) {
				frame := produceFrame(drawProduce(t, version).AppendTo(nil), version)
				var ends []int
				at := 0
				for at < len(frame) {
					ends = append(ends, at)
					at += rapid.IntRange(1, 300).Draw(t, "more")
				}
				lookInPieces(&a, frame, ends)
				h, err := ParseRequestHeader(frame)
				if err != nil {
					t.Fatal(err)
				}
				var p Produce
				if err := p.Parse(frame[h.BodyOffset:], version); err != nil {
					t.Fatal(err)
				}
				want := 0
				for _, part := range p.Partitions {
					if len(part.Records) >= batchHeaderSize {
						want++
					}
				}
				if got := checkSums(t, &a, &p, h.BodyOffset); got != want {
					t.Fatalf("%d batches were summed, want %d", got, want)
				}
			})
		})
	}
}

// What real clients send is checked by its sum as it is without.
func TestArrivingChecksRealRequests(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(goldenDir, "produce-*.bin"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	var a Arriving
	var p Produce
	for _, file := range files {
		frame, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ParseRequestHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		for damaged := range 2 {
			frame[len(frame)-20] ^= byte(damaged) // in the last record
			lookInPieces(&a, frame, []int{1, h.BodyOffset + 1, len(frame) / 2})
			if err := p.Parse(frame[h.BodyOffset:], h.APIVersion); err != nil {
				t.Fatal(err)
			}
			if got := checkSums(t, &a, &p, h.BodyOffset); got != len(p.Partitions) {
				t.Errorf("%s: %d of %d batches were summed", file, got, len(p.Partitions))
			}
			for i := range p.Partitions {
				want, wantErr := ParseBatch(p.Partitions[i].Records)
				if got, err := p.Partitions[i].Batch(); got != want || err != wantErr {
					t.Errorf("%s: got %v, %v, want %v, %v", file, got, err, want, wantErr)
				}
			}
		}
	}
}

// A sum is of one frame only: after Reset the next has none of its own yet.
func TestArrivingForgets(t *testing.T) {
	frame := produceFrame(sampleProduce(9, make([]byte, 100)), 9)
	h, err := ParseRequestHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	var a Arriving
	var p Produce
	for _, test := range []struct{ reset, told bool }{{false, true}, {true, false}} {
		lookInPieces(&a, frame, nil)
		if test.reset {
			a.Reset()
		}
		if err := p.Parse(frame[h.BodyOffset:], 9); err != nil {
			t.Fatal(err)
		}
		if got := checkSums(t, &a, &p, h.BodyOffset) > 0; got != test.told {
			t.Errorf("reset %t: told %t", test.reset, got)
		}
	}
}

func TestArrivingLeavesOtherRequestsAlone(t *testing.T) {
	var a Arriving
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 12
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, fetch, 1)[4:]
	for _, frame := range [][]byte{frame, {0, 0, 0x7f, 0xff, 0, 0, 0, 0, 0xff, 0xff}, {0, 0}, nil} {
		lookInPieces(&a, frame, []int{0, 5, 9})
		if len(a.batches) > 0 {
			t.Errorf("found %d batches in % x", len(a.batches), frame)
		}
	}
}

// What comes without end between two batches is looked at a few times only.
func TestArrivingGivesUpOnWhatDoesNotEnd(t *testing.T) {
	tags := append([]byte{0xff, 0xff, 0xff, 0x7f}, make([]byte, 4*arrivingItem)...) // of a length of 0 each
	whole := produceFrame(sampleProduce(9, make([]byte, 100)), 9)
	for name, front := range map[string][]byte{
		"header":    whole[:12],
		"partition": whole[:len(whole)-3], // behind it are the tags of partition, topic and request
	} {
		t.Run(name, func(t *testing.T) {
			frame := append(append([]byte(nil), front...), tags...)
			var a Arriving
			a.Look(frame[:len(front)+arrivingItem/2])
			if a.stage == arrivingEnd {
				t.Error("gave up though little has come")
			}
			a.Look(frame)
			if a.stage != arrivingEnd {
				t.Errorf("did not give up; stage %d", a.stage)
			}
		})
	}
}

func TestArrivingAllocatesNothing(t *testing.T) {
	frame := produceFrame(sampleProduce(9, make([]byte, 100_000)), 9)
	var a Arriving
	var p Produce
	h, err := ParseRequestHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		a.Reset()
		for end := 30_000; end < len(frame); end += 30_000 {
			a.Look(frame[:end])
		}
		a.Look(frame)
		if err := p.Parse(frame[h.BodyOffset:], 9); err != nil {
			t.Fatal(err)
		}
		a.Tell(&p, h.BodyOffset)
	}); got > 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// FuzzArriving: no frame is misread, whatever is in it and however it comes: a sum
// that is told is that of the batch which Produce.Parse finds.
func FuzzArriving(f *testing.F) {
	goldenBodies(f, func(body []byte, version int16) { f.Add(produceFrame(body, version), []byte{1, 200, 30}) })
	for version := int16(MinProduceVersion); version <= MaxProduceVersion; version++ {
		f.Add(produceFrame(sampleProduce(version, make([]byte, 100)), version), []byte{3})
	}
	var a Arriving
	f.Fuzz(func(t *testing.T, frame, steps []byte) {
		var ends []int
		at := 0
		for _, step := range steps {
			at += int(step)
			ends = append(ends, at)
		}
		lookInPieces(&a, frame, ends)
		h, err := ParseRequestHeader(frame)
		if err != nil || h.APIKey != int16(kmsg.Produce) || h.BodyOffset < 0 {
			return
		}
		var p Produce
		if p.Parse(frame[h.BodyOffset:], h.APIVersion) != nil {
			return
		}
		checkSums(t, &a, &p, h.BodyOffset)
	})
}
