package wire

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func requestFrame(clientID *string, r kmsg.Request) []byte {
	options := []kmsg.RequestFormatterOpt{}
	if clientID != nil {
		options = append(options, kmsg.FormatterClientID(*clientID))
	}
	return kmsg.NewRequestFormatter(options...).AppendRequest(nil, r, 0x01020304)[4:]
}

func TestParseRequestHeaderOfEveryAPIAndVersion(t *testing.T) {
	name := "client"
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		for version := int16(0); version <= r.MaxVersion(); version++ {
			r.SetVersion(version)
			for _, clientID := range []*string{nil, &name} {
				frame := requestFrame(clientID, r)
				h, err := ParseRequestHeader(frame)
				if err != nil {
					t.Fatalf("key %d v%d: %v", key, version, err)
				}
				if h.APIKey != key || h.APIVersion != version || h.CorrelationID != 0x01020304 {
					t.Errorf("key %d v%d: got %+v", key, version, h)
				}
				if key == int16(kmsg.ControlledShutdown) && version == 0 {
					// Request header v0, which the formatter does not write.
					if h.BodyOffset != fixedHeader {
						t.Errorf("ControlledShutdown v0: body at %d, want %d", h.BodyOffset, fixedHeader)
					}
					continue
				}
				if clientID != nil && string(h.ClientID) != name {
					t.Errorf("key %d v%d: client id %q", key, version, h.ClientID)
				}
				if clientID == nil && h.ClientID != nil {
					t.Errorf("key %d v%d: client id %q, want null", key, version, h.ClientID)
				}
				want := len(frame) - len(r.AppendTo(nil))
				if h.BodyOffset != want {
					t.Errorf("key %d v%d: body at %d, want %d", key, version, h.BodyOffset, want)
				}
			}
		}
	}
}

func TestParseRequestHeaderSkipsTags(t *testing.T) {
	frame := []byte{0, 3, 0, 9, 0, 0, 0, 1, 0, 1, 'c', 2, 0, 3, 'a', 'b', 'c', 0x80, 0x01, 0, 'B'}
	h, err := ParseRequestHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	if got := frame[h.BodyOffset:]; string(got) != "B" {
		t.Errorf("body: got %q, want B", got)
	}
}

func TestParseRequestHeaderOfWhatWeDoNotKnow(t *testing.T) {
	for name, frame := range map[string][]byte{
		"negative key":     {0xff, 0xff, 0, 1, 0, 0, 0, 9},
		"key to come":      {0x7f, 0xff, 0, 1, 0, 0, 0, 9},
		"version to come":  {0, 3, 0x7f, 0xff, 0, 0, 0, 9, 0xff},
		"negative version": {0, 3, 0xff, 0xff, 0, 0, 0, 9},
	} {
		h, err := ParseRequestHeader(frame)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h.BodyOffset != -1 || h.CorrelationID != 9 {
			t.Errorf("%s: got %+v", name, h)
		}
	}
}

func TestParseRequestHeaderRefusesEveryTruncation(t *testing.T) {
	name := "client"
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 9
	frame := requestFrame(&name, r)
	whole, err := ParseRequestHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole.BodyOffset {
		if _, err := ParseRequestHeader(frame[:n]); !errors.Is(err, ErrShortHeader) {
			t.Errorf("%d bytes of %d: got %v, want %v", n, whole.BodyOffset, err, ErrShortHeader)
		}
	}
}

// produceAcks reads acks from a request of which nothing is known yet.
func produceAcks(frame []byte) (int16, error) {
	h, err := ParseRequestHeader(frame)
	if err != nil {
		return 0, err
	}
	return h.ProduceAcks(frame)
}

func TestProduceAcksInEveryVersion(t *testing.T) {
	id, empty := "transaction", ""
	for version := int16(0); version <= 13; version++ {
		for _, transaction := range []*string{nil, &empty, &id} {
			for _, acks := range []int16{-1, 0, 1} {
				r := kmsg.NewPtrProduceRequest()
				r.Version, r.Acks, r.TransactionID = version, acks, transaction
				frame := requestFrame(nil, r)
				got, err := produceAcks(frame)
				if err != nil || got != acks {
					t.Errorf("v%d: got %d, %v, want %d", version, got, err, acks)
				}
				h, _ := ParseRequestHeader(frame)
				body := len(frame) - h.BodyOffset
				// Timeout and topics follow acks.
				tail := 4 + 4
				if version >= 9 {
					tail = 4 + 1 + 1
				}
				for n := range body - tail {
					if _, err := produceAcks(frame[:h.BodyOffset+n]); !errors.Is(err, ErrShortHeader) {
						t.Errorf("v%d: %d bytes of the body: got %v, want %v", version, n, err, ErrShortHeader)
					}
				}
			}
		}
	}
}

func TestProduceAcksOfAnythingElse(t *testing.T) {
	for _, frame := range [][]byte{
		requestFrame(nil, kmsg.NewPtrMetadataRequest()),
		{0, 0, 0, 14, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1},
	} {
		if _, err := produceAcks(frame); !errors.Is(err, ErrShortHeader) {
			t.Errorf("%x: got %v, want %v", frame, err, ErrShortHeader)
		}
	}
}

func TestAnswerBodyOffset(t *testing.T) {
	tests := []struct {
		name         string
		key, version int16
		answer       []byte
		want         int
	}{
		{"before flexible versions", 3, 8, []byte{0, 0, 0, 1, 9}, 4},
		{"flexible", 3, 9, []byte{0, 0, 0, 1, 0, 9}, 5},
		{"with a tag", 3, 9, []byte{0, 0, 0, 1, 1, 0, 2, 'a', 'b', 9}, 9},
		{"ApiVersions", 18, 4, []byte{0, 0, 0, 1, 0, 9}, 4},
		{"unknown", 999, 4, []byte{0, 0, 0, 1, 0, 9}, 4},
	}
	for _, test := range tests {
		got, err := AnswerBodyOffset(test.answer, test.key, test.version)
		if err != nil || got != test.want {
			t.Errorf("%s: got %d, %v, want %d", test.name, got, err, test.want)
		}
	}
	for _, answer := range [][]byte{{0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1, 1, 0, 9}} {
		if _, err := AnswerBodyOffset(answer, 3, 9); !errors.Is(err, ErrShortHeader) {
			t.Errorf("%x: got %v, want %v", answer, err, ErrShortHeader)
		}
	}
}

func TestCorrelationIDs(t *testing.T) {
	request := requestFrame(nil, kmsg.NewPtrMetadataRequest())
	SetCorrelationID(request, -5)
	h, err := ParseRequestHeader(request)
	if err != nil || h.CorrelationID != -5 {
		t.Errorf("request: got %d, %v, want -5", h.CorrelationID, err)
	}
	answer := make([]byte, 4)
	SetAnswerCorrelationID(answer, -6)
	if got := CorrelationID(answer); got != -6 {
		t.Errorf("answer: got %d, want -6", got)
	}
}

func TestParseRequestHeaderAllocatesNothing(t *testing.T) {
	frame := requestFrame(nil, kmsg.NewPtrProduceRequest())
	got := testing.AllocsPerRun(100, func() {
		h, err := ParseRequestHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.ProduceAcks(frame); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// FuzzParseRequestHeader: whatever the bytes, offsets stay within them, and a
// Produce request that kmsg can read has the acks that kmsg reads.
func FuzzParseRequestHeader(f *testing.F) {
	name := "client"
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if r := kmsg.RequestForKey(key); r != nil {
			f.Add(requestFrame(&name, r))
			r.SetVersion(r.MaxVersion())
			f.Add(requestFrame(nil, r))
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := ParseRequestHeader(frame)
		if err != nil {
			if !errors.Is(err, ErrShortHeader) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if h.APIKey != int16(binary.BigEndian.Uint16(frame)) || h.BodyOffset != -1 && (h.BodyOffset < fixedHeader || h.BodyOffset > len(frame)) {
			t.Fatalf("got %+v for %d bytes", h, len(frame))
		}
		acks, err := produceAcks(frame)
		if h.APIKey != int16(kmsg.Produce) || h.BodyOffset < 0 {
			if err == nil {
				t.Fatal("acks without a Produce request")
			}
			return
		}
		r := kmsg.NewPtrProduceRequest()
		r.Version = h.APIVersion
		if r.ReadFrom(frame[h.BodyOffset:]) == nil && (err != nil || acks != r.Acks) {
			t.Fatalf("acks: got %d, %v, want %d", acks, err, r.Acks)
		}
	})
}
