package proxy

import "encoding/binary"

// mayBearEndpoints reports whether the body of a Produce answer (version 10
// and up) has tagged fields at the top level or in a partition, which is
// where KIP-951 put new leaders and addresses. Nearly no answer has, so this
// walk spares decoding it. What cannot be walked may bear anything.
func mayBearEndpoints(body []byte, version int16) bool {
	w := answerWalk{rest: body}
	for topics := w.count(); topics > 0 && !w.bad; topics-- {
		if version >= 13 {
			w.skip(16)
		} else {
			w.compact()
		}
		for partitions := w.count(); partitions > 0 && !w.bad; partitions-- {
			// Partition, error code, base offset, append time, log start.
			w.skip(4 + 2 + 8 + 8 + 8)
			for records := w.count(); records > 0 && !w.bad; records-- {
				w.skip(4)
				w.compact()
				w.noTags()
			}
			w.compact()
			w.noTags()
		}
		w.noTags()
	}
	w.skip(4) // throttle time
	w.noTags()
	return w.bad || len(w.rest) > 0
}

// answerWalk steps through an answer. After anything unexpected bad is set
// and nothing is left.
type answerWalk struct {
	rest []byte
	bad  bool
}

func (w *answerWalk) fail() { w.rest, w.bad = nil, true }

func (w *answerWalk) skip(n int) {
	if n > len(w.rest) {
		w.fail()
		return
	}
	w.rest = w.rest[n:]
}

// count reads the length of a compact array or string, 0 for null.
func (w *answerWalk) count() int {
	v, n := binary.Uvarint(w.rest)
	if n <= 0 || v > uint64(len(w.rest)) {
		w.fail()
		return 0
	}
	w.rest = w.rest[n:]
	return max(0, int(v)-1)
}

func (w *answerWalk) compact() { w.skip(w.count()) }

func (w *answerWalk) noTags() {
	if len(w.rest) == 0 || w.rest[0] != 0 {
		w.fail()
		return
	}
	w.rest = w.rest[1:]
}
