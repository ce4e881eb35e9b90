package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"
)

// scriptedReader gives these chunks, one a read, then the error.
type scriptedReader struct {
	chunks [][]byte
	err    error
	widths []int // room offered by each read
}

func (r *scriptedReader) Read(p []byte) (int, error) {
	r.widths = append(r.widths, len(p))
	if len(r.chunks) == 0 {
		return 0, r.err
	}
	n := copy(p, r.chunks[0])
	if r.chunks[0] = r.chunks[0][n:]; len(r.chunks[0]) == 0 {
		r.chunks = r.chunks[1:]
	}
	return n, nil
}

func TestInboxFillTakesWhatIsAvailable(t *testing.T) {
	r := &scriptedReader{chunks: [][]byte{[]byte("abcdef"), []byte("gh")}, err: io.EOF}
	in := NewInbox(r, 512, 1<<10)
	if err := in.Fill(2); err != nil {
		t.Fatal(err)
	}
	if got, want := string(in.Bytes()), "abcdef"; got != want {
		t.Errorf("after one read: got %q, want %q", got, want)
	}
	in.Advance(5)
	if err := in.Fill(3); err != nil {
		t.Fatal(err)
	}
	if got, want := string(in.Bytes()), "fgh"; got != want {
		t.Errorf("after the second read: got %q, want %q", got, want)
	}
	if got := len(r.widths); got != 2 {
		t.Errorf("got %d reads, want 2", got)
	}
}

func TestInboxErrors(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name   string
		reader io.Reader
		fill   int
		want   error
		left   string
	}{
		{"end of stream", &scriptedReader{err: io.EOF}, 1, io.EOF, ""},
		{"end within a frame", &scriptedReader{chunks: [][]byte{[]byte("ab")}, err: io.EOF}, 3, io.ErrUnexpectedEOF, "ab"},
		{"reader's error", &scriptedReader{chunks: [][]byte{[]byte("ab")}, err: broken}, 3, broken, "ab"},
		{"above the bound", &scriptedReader{chunks: [][]byte{[]byte("ab")}}, 1025, ErrTooLarge, ""},
		{"no progress", &scriptedReader{}, 1, io.ErrNoProgress, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := NewInbox(test.reader, 512, 1024)
			if got := in.Fill(test.fill); !errors.Is(got, test.want) {
				t.Errorf("error: got %v, want %v", got, test.want)
			}
			if got := string(in.Bytes()); got != test.left {
				t.Errorf("left: got %q, want %q", got, test.left)
			}
		})
	}
}

func TestInboxGoesOnAfterADeadline(t *testing.T) {
	r := &scriptedReader{chunks: [][]byte{[]byte("ab")}, err: os.ErrDeadlineExceeded}
	in := NewInbox(r, 512, 1024)
	if got := in.Fill(4); !errors.Is(got, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", got)
	}
	r.chunks = [][]byte{[]byte("cd")}
	if err := in.Fill(4); err != nil {
		t.Fatal(err)
	}
	if got, want := string(in.Bytes()), "abcd"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInboxGrowsOnlyAsBytesArrive(t *testing.T) {
	const announced = 64 << 20
	r := &scriptedReader{chunks: [][]byte{make([]byte, 100)}, err: io.EOF}
	in := NewInbox(r, 512, announced)
	if got := in.Fill(announced); !errors.Is(got, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v", got)
	}
	if got := len(in.buf); got > 512 {
		t.Errorf("100 bytes of %d took a buffer of %d", announced, got)
	}
	r.chunks = [][]byte{make([]byte, 412), make([]byte, 100)}
	_ = in.Fill(announced)
	if got := len(in.buf); got > 512*growthFactor {
		t.Errorf("612 bytes of %d took a buffer of %d", announced, got)
	}
}

func TestInboxShrinksAfterALargeFrame(t *testing.T) {
	const large = 4 << 20
	r := &scriptedReader{chunks: [][]byte{make([]byte, large)}}
	in := NewInbox(r, 512, large)
	if err := in.Fill(large); err != nil {
		t.Fatal(err)
	}
	in.Advance(large)
	if got := len(in.buf); got > keepBytes {
		t.Errorf("an empty inbox keeps %d bytes, want at most %d", got, keepBytes)
	}
	for range 4 * quietRounds {
		r.chunks = append(r.chunks, []byte("small"))
		if err := in.Fill(5); err != nil {
			t.Fatal(err)
		}
		in.Advance(5)
	}
	if got := len(in.buf); got > 512 {
		t.Errorf("after small frames it keeps %d bytes, want 512", got)
	}
}

// A frame that did not fit is likely to be followed by others like it, of which each
// should take one read.
func TestInboxIsAsWideAsTheFramesThatCome(t *testing.T) {
	const frame, initial = 12 << 10, 8 << 10
	r := &patientReader{}
	for range 6 {
		r.chunks = append(r.chunks, make([]byte, frame))
	}
	in := NewInbox(r, initial, 1<<20)
	r.in = in
	for range 6 {
		if err := in.Fill(frame); err != nil {
			t.Fatal(err)
		}
		in.Advance(frame)
	}
	// Two for the first one.
	if got := len(r.widths); got != 7 {
		t.Errorf("got %d reads, want 7, of widths %v", got, r.widths)
	}
	for range 2 * quietRounds {
		r.chunks = append(r.chunks, []byte("small"))
		if err := in.Fill(5); err != nil {
			t.Fatal(err)
		}
		in.Advance(5)
	}
	if got := r.widths[len(r.widths)-1]; got > initial {
		t.Errorf("small frames are still read to %d bytes, want %d", got, initial)
	}
}

func TestInboxWidensForABusyStream(t *testing.T) {
	r := &scriptedReader{chunks: [][]byte{make([]byte, 4<<20)}}
	in := NewInbox(r, 512, 1<<20)
	for range 20 {
		if err := in.Fill(100); err != nil {
			t.Fatal(err)
		}
		in.Advance(len(in.Bytes()))
	}
	if got := r.widths[len(r.widths)-1]; got < keepBytes {
		t.Errorf("reads stay %d bytes wide, want %d", got, keepBytes)
	}
}

// What comes behind a large frame is not read with it, or it would have to be moved.
func TestInboxReadsNoFurtherThanALargeFrame(t *testing.T) {
	const large = 3 << 20
	stream := make([]byte, 2*large)
	for i := range stream {
		stream[i] = byte(i >> 7)
	}
	r := &scriptedReader{chunks: [][]byte{stream}}
	in := NewInbox(r, 512, large)
	for frame := range 2 {
		if err := in.Fill(512); err != nil {
			t.Fatal(err)
		}
		if err := in.Fill(large); err != nil {
			t.Fatal(err)
		}
		if got, want := in.Bytes(), stream[frame*large:][:large]; !bytes.Equal(got, want) {
			t.Fatalf("frame %d: got %d bytes, or others, want %d", frame, len(got), len(want))
		}
		in.Advance(large)
	}
}

// A large frame takes what memory there is at once, if there is some.
func TestInboxReusesLargeBuffers(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	collectOnlyOnDemand(t)
	const large = 5 << 20
	r := &scriptedReader{chunks: [][]byte{make([]byte, 2*large)}}
	in := NewInbox(r, 512, large)
	for range 2 {
		if err := in.Fill(1); err != nil {
			t.Fatal(err)
		}
		r.widths = nil
		if err := in.Fill(large); err != nil {
			t.Fatal(err)
		}
		in.Advance(large)
	}
	if got := len(r.widths); got != 1 {
		t.Errorf("got %d reads for the second frame, want 1", got)
	}
}

// patientReader says once, before each read, that there is nothing yet.
type patientReader struct {
	scriptedReader
	in      *Inbox
	holds   int // buffers that were held while nothing was there
	parkers int
}

func (r *patientReader) ReadWhenReady(room func() []byte, park func()) (int, error) {
	if len(room()) == 0 {
		return 0, io.ErrShortBuffer
	}
	park()
	r.parkers++
	if r.in.buf != nil {
		r.holds++
	}
	return r.Read(room())
}

func TestInboxHoldsNoBufferWhileNothingComes(t *testing.T) {
	r := &patientReader{scriptedReader: scriptedReader{chunks: [][]byte{[]byte("abc"), []byte("defghi"), make([]byte, 200<<10)}, err: io.EOF}}
	in := NewInbox(r, 512, 1<<20)
	r.in = in
	for _, want := range []string{"abc", "def", "ghi"} {
		if err := in.Fill(3); err != nil {
			t.Fatal(err)
		}
		if got := string(in.Bytes()[:3]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		in.Advance(3)
	}
	in.Reserve(100 << 10)
	if err := in.Fill(1); err != nil {
		t.Fatal(err)
	}
	if got := len(in.Bytes()); got < 100<<10 {
		t.Errorf("got a read of %d bytes, want the width that was reserved", got)
	}
	in.Advance(len(in.Bytes()))
	for in.Fill(1) == nil {
		in.Advance(len(in.Bytes()))
	}
	if err := in.Fill(1); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got %v", err)
	}
	if r.parkers < 5 || r.holds > 0 {
		t.Errorf("waited %d times, %d of them with a buffer, want none", r.parkers, r.holds)
	}
}

func TestInboxBytesCannotBeOverwrittenByAppend(t *testing.T) {
	in := NewInbox(&scriptedReader{chunks: [][]byte{[]byte("abcd")}}, 512, 1024)
	if err := in.Fill(4); err != nil {
		t.Fatal(err)
	}
	_ = append(in.Bytes(), 'X')
	if got := in.buf[in.end]; got == 'X' {
		t.Error("append wrote into the buffer behind the bytes")
	}
}

func TestInboxAllocatesNothingInSteadyState(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	frame := make([]byte, 1000)
	r := &repeater{b: frame}
	in := NewInbox(r, 8<<10, 1<<20)
	got := testing.AllocsPerRun(1000, func() {
		if err := in.Fill(len(frame)); err != nil {
			t.Fatal(err)
		}
		in.Advance(len(frame))
	})
	if got > 0 {
		t.Errorf("got %v allocations a frame, want 0", got)
	}
}

type repeater struct{ b []byte }

func (r *repeater) Read(p []byte) (int, error) { return copy(p, r.b), nil }

// FuzzInbox drives an Inbox by a script and holds it to the stream that it
// reads.
func FuzzInbox(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 200, 201, 17}, uint64(1), uint16(5000))
	f.Add(bytes.Repeat([]byte{255, 0, 64}, 40), uint64(2), uint16(65535))
	f.Fuzz(func(t *testing.T, script []byte, seed uint64, size uint16) {
		const bound = 400_000
		rng := rand.New(rand.NewPCG(seed, 1))
		stream := make([]byte, 16*int(size))
		for i := range stream {
			stream[i] = byte(rng.Uint32())
		}
		var reader io.Reader = &unevenReader{r: iotest.DataErrReader(bytes.NewReader(stream)), rng: rng}
		if seed%2 == 0 {
			reader = &fickleReader{reader, rng}
		}
		in := NewInbox(reader, 512, bound)
		at := 0
		for len(script) >= 3 {
			n := int(binary.BigEndian.Uint16(script[1:]))
			if script[0]&4 != 0 {
				n *= 8
			}
			n %= bound + 2
			switch script[0] % 4 {
			case 0:
				n %= len(in.Bytes()) + 1
				in.Advance(n)
				at += n
			case 1:
				in.Reserve(n)
			case 2, 3:
				err := in.Fill(n)
				switch {
				case n > bound:
					if !errors.Is(err, ErrTooLarge) {
						t.Fatalf("Fill(%d): got %v", n, err)
					}
				case err == nil && len(in.Bytes()) < n:
					t.Fatalf("Fill(%d): %d bytes", n, len(in.Bytes()))
				case err != nil && len(stream)-at >= n:
					t.Fatalf("Fill(%d) with %d left: %v", n, len(stream)-at, err)
				}
			}
			if got := in.Bytes(); !bytes.Equal(got, stream[at:at+len(got)]) {
				t.Fatalf("at %d: the bytes are not those of the stream", at)
			}
			script = script[3:]
		}
	})
}

type unevenReader struct {
	r   io.Reader
	rng *rand.Rand
}

func (u *unevenReader) Read(p []byte) (int, error) {
	width := u.rng.IntN(len(p) + 1)
	if width == 0 {
		return 0, nil // allowed of a reader, if pointless
	}
	return u.r.Read(p[:width])
}

// fickleReader says at random that there is nothing yet.
type fickleReader struct {
	io.Reader
	rng *rand.Rand
}

func (f *fickleReader) ReadWhenReady(room func() []byte, park func()) (int, error) {
	for f.rng.IntN(2) == 0 {
		room()
		park()
	}
	return f.Read(room())
}

// A peer that announces much and sends little holds little, though others have left
// large buffers behind.
func TestInboxTakesNoSpareForWhatIsOnlyAnnounced(t *testing.T) {
	collectOnlyOnDemand(t)
	const size, sent, peers = 8 << 20, 1 << 10, 20
	var slow []*Inbox
	held := 0
	for range peers {
		honest := NewInbox(bytes.NewReader(make([]byte, size)), 8<<10, 100<<20)
		if err := honest.Fill(size); err != nil {
			t.Fatal(err)
		}
		honest.Advance(size)
		in := NewInbox(&scriptedReader{chunks: [][]byte{make([]byte, sent)}, err: io.EOF}, 8<<10, 100<<20)
		if err := in.Fill(sent); err != nil {
			t.Fatal(err)
		}
		if err := in.FillSome(size); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("got %v, want the end", err)
		}
		held += len(in.buf)
		slow = append(slow, in)
	}
	if most := peers * sent * spareFactor; held > most {
		t.Errorf("%d peers that sent %d bytes each hold %d, want at most %d", len(slow), sent, held, most)
	}
}
