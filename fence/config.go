package fence

import "time"

// Marking says how the brokers mark an answer to a batch that they did not
// append because the same sequence range is in the log already.
type Marking int

const (
	// MarkLogAppendTime: log_append_time is −1 for a fresh append on a
	// CreateTime topic and the stored batch's timestamp for a duplicate
	// (Apache Kafka).
	MarkLogAppendTime Marking = iota
	// MarkLogStartOffset: log_start_offset is −1 for a duplicate (kfake).
	MarkLogStartOffset
	// MarkNone: not at all, or in a way that is not known. Only the log tells an
	// append from a duplicate.
	MarkNone
)

// Config is what the decision depends on. All durations must be positive; the
// proxy validates them. Shared between partitions and never changed.
type Config struct {
	// ViewMaxAge bounds the age of what a decision may rest on.
	ViewMaxAge time.Duration
	// AdmissionWait is the least time after which a waiting batch stops
	// waiting for the one in flight.
	AdmissionWait time.Duration
	// ProducerExpiry is the brokers' producer.id.expiration.ms.
	ProducerExpiry time.Duration
	// ConnectionIdle is the brokers' connections.max.idle.ms: how long the
	// bytes of a frozen sender can live.
	ConnectionIdle time.Duration
	// AnswerMax bounds Batch.AnswerWithin; 0: no bound. Clients choose their
	// timeouts, and can keep a broker from a batch for as long as they like by
	// requests that stand before it on its connection, so without a bound its
	// bytes could outlive the fence's state.
	AnswerMax time.Duration
	// Margin covers the expiry check's interval and clock skew.
	Margin time.Duration
	// SameViewRounds is how often in a row a partition's batches may be refused
	// on a view that a new reading confirms, before one is given back with a
	// retriable error, and an alarm.
	SameViewRounds int
	// MaxUnsettled bounds a partition's transmissions that are upstream or of
	// unknown fate; 0: no bound. None is forgotten for it: new batches are given
	// back until some are settled.
	MaxUnsettled int
	// MaxRecent bounds the recent records that are remembered of a partition in use,
	// so that most batches that come too late cost no reading; 0: 4,096. Up to twice
	// as many are kept before the oldest are forgotten.
	MaxRecent int
	// ProducerKeep is how long after its last use the virtual state of a client's
	// producer id is kept; 0: until others need the room.
	ProducerKeep time.Duration
	// MaxProducers bounds a partition's virtual producer states; 0: no bound.
	// When it is reached, the one not used for longest makes room. Those with a
	// batch in flight are kept, above the bound if need be.
	MaxProducers int
	// Fairness is between proxies; zero: none.
	Fairness Fairness
	// Unsafe forwards batches unstamped when the cached end matches, and
	// believes every answer. It exists to show what the fence is for.
	Unsafe bool

	// broken guards; see guard.
	broken guard
}

// copyLife is how long after its sending a copy of a batch can still arrive.
func (c *Config) copyLife() time.Duration { return c.ConnectionIdle + c.Margin }

// givenUpAfter is how long after that a transmission is remembered although
// the partition cannot be asked whether it is in the log.
func (c *Config) givenUpAfter() time.Duration { return 16 * c.copyLife() }

// stateUse is how much of a fence state's life a view of it may use up: what
// is sent on it may be waited for, and its bytes live on when it is abandoned.
func (c *Config) stateUse() time.Duration {
	return c.ViewMaxAge + c.AnswerMax + c.ConnectionIdle + c.Margin
}

// Servable reports whether producer state outlives every use of a view of it
// by enough: half its life is more than a view, a frozen sender's bytes, the
// expiry check and the clocks can take up. A topic on brokers where this does
// not hold cannot be fenced.
func (c *Config) Servable() bool { return c.ProducerExpiry/2 > c.stateUse() }

// OldestTimestamp is how far before now a stamped batch's max timestamp may
// lie on a CreateTime topic: expiry counts from it, so an older one would take
// the fence's state away with it.
func (c *Config) OldestTimestamp() time.Duration { return c.ProducerExpiry / 2 }
