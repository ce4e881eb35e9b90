package proxy

import (
	"errors"
	"runtime"
	"sync"

	"github.com/offsetproxy/offsetproxy/wire"
)

// inspectorPool lends wire.Inspectors for one way of writing conditions.
type inspectorPool struct{ pool sync.Pool }

func newInspectorPool(names wire.HeaderNames, encoding wire.Encoding, maxDecompressed int) *inspectorPool {
	return &inspectorPool{sync.Pool{New: func() any { return wire.NewInspector(names, encoding, maxDecompressed) }}}
}

// keptInspectorBytes is the largest decompression buffer that is kept for the
// next batch.
const keptInspectorBytes = 1 << 20

// inspection is what a batch's records say; it ends with done.
type inspection struct {
	wire.Inspection
	in    *wire.Inspector
	r     *rule
	turns chan struct{} // not nil: a turn to give back
}

// done gives back what the inspection took: its digests are invalid from then
// on. It is called once, whatever came of the inspection.
func (i *inspection) done() {
	i.in.Shrink(keptInspectorBytes)
	i.r.inspectors.pool.Put(i.in)
	if i.turns != nil {
		<-i.turns
	}
}

// inspectRecords reads the records of a batch by a rule.
func (f *fencing) inspectRecords(r *rule, header wire.BatchHeader, batch []byte) (inspection, error) {
	i := inspection{in: r.inspectors.pool.Get().(*wire.Inspector), r: r}
	// What is large waits for its turn; small batches do not wait behind it.
	found, err := i.in.InspectWithin(header, batch, keptInspectorBytes)
	if errors.Is(err, wire.ErrTooLarge) {
		f.inspecting <- struct{}{}
		i.turns = f.inspecting
		found, err = i.in.Inspect(header, batch)
	}
	i.Inspection = found
	return i, err
}

// maxInspecting bounds the batches that are decompressed and read at the same
// time: it is work for processors, and each may need its own large buffer.
func maxInspecting() int { return runtime.GOMAXPROCS(0) }
