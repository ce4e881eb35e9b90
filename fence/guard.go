package fence

// guard is one of the protections that a promise rests on. Config.broken is
// zero outside of tests, which take one guard away at a time to show that
// something goes wrong without it: this package's own, and those that have built
// the program with the tag proof.
type guard uint64

const (
	guardAppendTime    guard = 1 << iota // a log_append_time marks a duplicate
	guardTypeBit                         // the stored batch's own timestamp type is asked
	guardViewAge                         // no sending on an old view
	guardConnAge                         // no sending on a view older than the connection
	guardWitness                         // no sending on an uncommitted end before committed state was seen
	guardWitnessLife                     // … that lives as long as what is sent
	guardDrift                           // no sending on unaligned state that may expire
	guardArming                          // all proxies arm with the same sequence
	guardOneInFlight                     // no sending on a predicted end
	guardUncommitted                     // no refusal because of what is not committed
	guardIdentity                        // no refusal before the records were compared
	guardWeak                            // nothing but unknown while a transmission is
	guardSameSequence                    // an unknown batch is sent again as before
	guardAbandon                         // an answer after abandoning is not judged
	guardTold                            // a client's success is told again, not made again
	guardTried                           // an unknown batch without condition is looked for where it was tried
	guardFollow                          // a retry of what is in flight waits for it
	guardSequence                        // a gap in a client's sequence is refused
	guardElsewhere                       // … on all but a newer connection
	guardChainHold                       // nothing is sent before what its client sent before is decided
	guardChainGap                        // what comes late behind a refused batch is refused
	guardChainIdentity                   // no predecessor refused before the records were compared
	guardChainUnknown                    // no predecessor refused after an unknown
	guardChainNewest                     // only the newest transmission says what is behind a gap
	guardChainEpoch                      // a new epoch lifts no chain from what is there already
	guardClaim                           // of equal batches without a condition one alone lies at an offset
	guardRoom                            // what is unknown does not keep a partition from being written for ever
	guardMoment                          // … nor is an equal batch of another moment taken for one that was just sent
	guardOvertaking                      // what a client sends again comes before what it sent behind it
	guardGone                            // what is gone is not taken for what never was, where no log_start is told
	guardReadBack                        // what lies where a batch of unknown fate was sent is compared with it
	guardHighWatermark                   // … if it is committed
	guardPerRecord                       // one record in common makes it the same batch
	guardSecondLook                      // a refusal by the broker is told when the log was looked at again
	guardTailView                        // no sending on a view of the past whose state may expire
)

// keeps reports whether the guard is in place.
func (c *Config) keeps(g guard) bool { return c.broken&g == 0 }

// guardNamed gives the guard that docs/semantics.md lists by this name; 0: there
// is none. Nothing in the shipped program calls it.
func guardNamed(name string) guard { return guardNames()[name] }

func guardNames() map[string]guard {
	return map[string]guard{
		"append-time": guardAppendTime, "type-bit": guardTypeBit, "view-age": guardViewAge,
		"connection-age": guardConnAge, "witness": guardWitness, "witness-life": guardWitnessLife,
		"drift": guardDrift, "arming": guardArming, "one-in-flight": guardOneInFlight,
		"uncommitted": guardUncommitted, "identity": guardIdentity, "weak": guardWeak,
		"same-sequence": guardSameSequence, "abandon": guardAbandon, "told": guardTold, "tried": guardTried,
		"follow": guardFollow, "sequence": guardSequence, "elsewhere": guardElsewhere,
		"chain-hold": guardChainHold, "chain-gap": guardChainGap, "chain-identity": guardChainIdentity,
		"chain-unknown": guardChainUnknown, "chain-newest": guardChainNewest, "chain-epoch": guardChainEpoch,
		"claim": guardClaim, "room": guardRoom, "moment": guardMoment, "overtaking": guardOvertaking, "gone": guardGone,
		"read-back": guardReadBack, "high-watermark": guardHighWatermark, "per-record": guardPerRecord,
		"second-look": guardSecondLook, "tail-view": guardTailView,
	}
}
