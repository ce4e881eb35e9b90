package fence

import (
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// Kafka error codes that the judgement knows (KIP-1 numbering).
const (
	codeNone                     = 0
	codeOutOfOrderSequenceNumber = 45
	codeInvalidProducerEpoch     = 47
)

// Answer is a broker's answer for one stamped batch.
type Answer struct {
	Code       int16
	BaseOffset ps.Offset
	// LogAppendTime is −1 for a fresh append on a CreateTime topic.
	LogAppendTime ps.Timestamp
	// LogStart is −1 in versions that do not carry it.
	LogStart ps.Offset
}

// meaning is what an answer says about the transmission it answers.
type meaning int

const (
	// appended now, behind the high watermark.
	appended meaning = iota
	// notNow: this transmission was not appended, because of its sequence.
	notNow
	// refusedByBroker: this transmission was not appended, for a reason that
	// has nothing to do with the fence.
	refusedByBroker
	// ambiguous: appended on a LogAppendTime topic, or a duplicate.
	ambiguous
	// noIdea: it may or may not be in the log, or not for long.
	noIdea
)

// judge says what an answer means, for the only transmission of a batch that
// is outstanding. Brokers append before they wait for replicas, so an error
// with a base offset is about records that are in the leader's log.
func judge(c *Config, marking Marking, a Answer) meaning {
	base := a.BaseOffset
	if marking == MarkLogStartOffset && a.Code != codeNone {
		base = ps.NoOffset // kfake leaves it 0 on errors
	}
	switch a.Code {
	case codeNone:
		switch {
		case c.Unsafe:
			return appended
		case base < 0:
			return noIdea // no broker says so
		case marking == MarkNone:
			return ambiguous
		case marking == MarkLogStartOffset && a.LogStart == ps.NoOffset:
			return notNow
		case marking == MarkLogAppendTime && a.LogAppendTime != -1 && c.keeps(guardAppendTime):
			return ambiguous
		}
		return appended
	case codeOutOfOrderSequenceNumber, codeInvalidProducerEpoch:
		if base == ps.NoOffset {
			return notNow
		}
	default:
		if base == ps.NoOffset && refusals[a.Code] {
			return refusedByBroker
		}
	}
	return noIdea
}

// refusals are the error codes with which, and without a base offset, a
// broker says that it appended nothing. Any code that is not here leaves the
// fate of the batch open: 7 and 20 come after the append, 56 and −1 may leave
// bytes behind, and what a later broker may invent is not known.
var refusals = map[int16]bool{
	2: true, 3: true, 6: true, 10: true, 17: true, 18: true, 19: true, 21: true, 29: true, 31: true, 32: true,
	42: true, 43: true, 48: true, 49: true, 51: true, 53: true, 76: true, 87: true, 90: true, 100: true, 120: true,
}
