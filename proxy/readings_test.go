package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
	"github.com/offsetproxy/offsetproxy/wire"
)

// A stored batch of an old format made its offset's batches "send again" for
// ever: which errors of a reading are final, and which are not.
func TestUnreadableRecordsAreFinal(t *testing.T) {
	said, err := newOnceByTopic(1)
	if err != nil {
		t.Fatal(err)
	}
	f := &fencing{logger: slog.New(slog.DiscardHandler), denied: said}
	for _, c := range []struct {
		err   error
		code  int16
		final bool
	}{
		{wire.ErrOldFormat, 0, true},
		{wire.ErrTooLarge, 0, true},
		{wire.ErrCorrupt, 0, true},
		{wire.ErrBadCRC, 0, true},
		{fmt.Errorf("%w: %w", prober.ErrAnswerTooLarge, prober.ErrUnreachable), 0, true},
		{&prober.BrokerError{Code: 29}, 29, true},
		{&prober.BrokerError{Code: 31}, 31, true},
		{&prober.BrokerError{Code: 6}, 6, false},
		{&prober.UnsupportedError{Op: "Fetch"}, 35, true},
		{prober.ErrUnreachable, 0, false},
		{context.DeadlineExceeded, 0, false},
	} {
		err := fmt.Errorf("read back: %w", c.err)
		code, final := f.readingFailed(ps.Key{}, err)
		if final = final || unreadable(err); code != c.code || final != c.final {
			t.Errorf("%v: got code %d, final %v, want %d, %v", c.err, code, final, c.code, c.final)
		}
	}
}
