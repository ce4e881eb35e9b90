package verify

import "time"

// Offset is a position in a partition.
type Offset int64

// NoOffset stands where no offset is known, or none was expected.
const NoOffset Offset = -1

// Partition is a partition's number within the topic.
type Partition int32

// Moment is a time in nanoseconds since the run began, on one monotonic clock.
type Moment int64

// Never is later than all moments: the end of what has no end.
const Never Moment = 1<<63 - 1

// String gives seconds.
func (m Moment) String() string {
	if m == Never {
		return "never"
	}
	return time.Duration(m).Round(time.Microsecond).String()
}

// AppendNumber counts a writer's appends from 0.
type AppendNumber int32
