// Package wire reads and edits the bytes of the Kafka protocol that the proxy
// has to understand itself: request headers, Produce requests, record batches
// and the records in them. Hot paths walk the bytes where they lie; nothing
// is decoded into objects and, in steady state, nothing is allocated.
//
// Contract:
//
//   - Input is untrusted. Whatever the bytes are, no function panics, loops
//     without end, or allocates by a length that was not checked against the
//     bytes at hand or a limit given by the caller.
//   - Results alias the input unless their comment says otherwise: they are
//     valid while the frame they were read from is neither reused nor edited.
//   - Nothing here is safe for concurrent use on one value, except package
//     functions, which keep no state but pools.
//   - Errors never carry the content of records.
//
// Misuse by our own code (stamping something that ParseBatch has not
// accepted, a partition index that Parse has not returned) panics.
//
// Not here: decoding of messages off the hot path (kmsg does it), any
// judgement about offsets or sequences, any I/O other than reading a
// connection into an Inbox, compression.
package wire
