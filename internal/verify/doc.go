// Package verify finds out whether a cluster behind proxies keeps the promises
// of docs/semantics.md: writers of many habits append through the proxies, what
// they send and are told becomes a history, and then the log is held against it.
//
// # The history
//
// A file of JSON lines, which Run writes and ReadHistory reads. A line has a type:
//
//   - run: what was set up; the first line.
//   - begin: where a partition's log ended before the first append.
//   - op: a logical append, that is some records of one writer for one partition.
//     It stands before its tries.
//   - try: one transmission of an op, or of some of its records, with its start
//     and end in nanoseconds since the run began, on one monotonic clock.
//   - end: a read of a partition's end. Kafka promises a lower bound.
//   - log: records that the log holds, by the names that are their values.
//   - read: a partition's log has been read to its end.
//
// The check knows nothing but this file, so a stored history can be checked again.
//
// # What is checked
//
// (a) Each success lies exactly at its promised offsets, and nowhere else. (b) No
// record refused as taken is in the log below the next offset that was told; nothing else
// refused is in the log, unless another copy of it was sent and its fate is not
// known. (c) What is unknown is in the log at most once, and only where it was promised.
// (d) There is no record that nobody wrote, and no offset without a record. A batch is
// there as a whole or not at all. (e) The history is linearizable.
//
// # Linearizable
//
// Successes of a partition are forced into the order of their offsets, so that (e) has
// an exact answer in linear time: each append takes effect as early
// as it can, and must have done so before its answer, and before the answer of
// whoever was told of an end beyond it. Porcupine, a checker that knows nothing of this,
// judges the same within a time that is given to it. It gets long histories in pieces,
// cut at ends that the log must have had. An append of unknown
// fate is decided by the log before that: if it is there, it took effect at its offset, any
// time from its start on; if it is not, it never did.
//
// Non-goals: brokers with TLS or SASL, topics that others write to, or whose records
// are deleted during the run.
package verify
