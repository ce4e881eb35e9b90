// Package fence decides conditional appends to one partition.
//
// A Partition is a state machine that is stepped by one caller at a time. A
// batch is admitted as a Ticket; events (a view was read, the broker
// answered, a connection died, time passed) are fed in; what must happen next
// comes out as Effects: send this batch with that stamp, tell its client this
// verdict, read a view, read records back. The caller carries them out and
// feeds the results in again.
//
// It does no input or output, reads no clock, starts no goroutine and takes
// no lock, so that the very code that runs in the proxy can be run under a
// simulator. It holds the promise that a success is at its promised offset, a
// refusal is final where it says so, and what is unknown is called unknown;
// the reasons are in ARCHITECTURE.md and docs/semantics.md.
//
// Not here: bytes and codecs (package wire), sockets and who waits for whom
// on a connection (package proxy).
package fence
