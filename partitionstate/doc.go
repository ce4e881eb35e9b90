// Package partitionstate holds what a proxy knows of one partition: the view
// (the end of the log and the fence's sequence there, true at one instant),
// the committed end, whether committed fence state has been witnessed, the
// digests of records known to lie at recent offsets, the transmissions whose
// fate is unknown, and of each idempotent client what a broker would know of it.
//
// A State is a pure state machine: no input or output, no clock, no goroutine,
// no lock. Time comes in as an argument. It moves only through the named
// transitions; stale input changes nothing and is reported as false. It is
// used by one caller at a time; package fence decides with it and the proxy
// serialises the calls, and those of the Cache of idle states, which all
// partitions share.
//
// Not here: decisions about batches (package fence) and bytes (package wire).
package partitionstate
