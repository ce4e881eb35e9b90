package fence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// clientBatch reads where a batch stands among its client's.
func (s *script) clientBatch(a arguments) *ClientBatch {
	text := a.text("producer", "")
	if text == "" {
		return nil
	}
	var id, epoch, sequence int64
	if n, err := fmt.Sscanf(text, "%d/%d/%d", &id, &epoch, &sequence); n != 3 {
		a.d.Fatalf(a.t, "producer: want id/epoch/sequence: %v", err)
	}
	return &ClientBatch{
		ID: ps.ProducerID(id), Epoch: ps.ProducerEpoch(epoch), Sequence: ps.Sequence(sequence),
		Connection: ps.ConnectionID(a.int("conn", 1)),
	}
}

var outcomeNames = [...]string{"", "appended", "misplaced", "superseded", "undecided"}

// producer writes down what is known of a client's producer id.
func (s *script) producer(a arguments) string {
	id, err := strconv.ParseInt(a.first(), 10, 64)
	if err != nil {
		a.d.Fatalf(a.t, "%v", err)
	}
	p := s.part.State().Producer(ps.ProducerID(id))
	if p == nil {
		return "no state\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d next %d connection %d\n", p.Epoch(), p.Next(), p.Connection())
	for _, seq := range s.sequences(ps.ProducerID(id)) {
		if told, ok := p.Told(seq); ok {
			fmt.Fprintf(&b, "told of %d, %d records: %s %d\n", seq, told.Count, outcomeNames[told.Outcome], told.Offset)
		}
	}
	return b.String()
}

// sequences are those that the script's tickets of a client began with.
func (s *script) sequences(id ps.ProducerID) []ps.Sequence {
	var all []ps.Sequence
	for _, t := range s.tickets {
		if t.Producer != nil && t.Producer.ID == id {
			all = append(all, t.Producer.Sequence)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
