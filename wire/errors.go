package wire

import "errors"

var (
	// ErrTooLarge: something is larger than the limit the caller gave or the
	// package sets: a frame, a decompressed batch, a number of partitions.
	ErrTooLarge = errors.New("larger than the limit")
	// ErrMalformed: a request does not follow its schema in its version.
	ErrMalformed = errors.New("malformed request")
	// ErrMalformedAnswer: an answer does not follow its schema in its version.
	ErrMalformedAnswer = errors.New("malformed answer")
	// ErrVersion: the version of the request or answer is not one that we can read.
	ErrVersion = errors.New("unsupported version")
	// ErrShort: the bytes end before the batch does.
	ErrShort = errors.New("incomplete record batch")
	// ErrCorrupt: a record batch or a record in it is not well formed.
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrBadCRC: a record batch's CRC-32C is not that of its bytes.
	ErrBadCRC = errors.New("record batch checksum mismatch")
	// ErrOldFormat: a message set of magic 0 or 1 (before KIP-98).
	ErrOldFormat = errors.New("message format before record batches")
	// ErrControlBatch: a batch of control records, which only brokers write.
	ErrControlBatch = errors.New("control batch from a client")
)
