package proxy

import (
	"path"
	"regexp"
)

// Mode is what a rule asks of Produce requests to the topics it matches. A
// larger mode asks for more.
type Mode int

const (
	// ModeOff forwards untouched.
	ModeOff Mode = iota
	// ModeObserve forwards untouched and counts what the fence would have said.
	ModeObserve
	// ModeEnforce fences conditional batches, and all others too: they are
	// appended wherever the log ends.
	ModeEnforce
	// ModeRequire fences conditional batches and refuses all others.
	ModeRequire
)

// Replay says when a batch that a client sends again counts as its own append.
type Replay int

const (
	// ReplayID: when its records are in the log with the same append-ids.
	ReplayID Replay = iota
	// ReplayContent: when equal records are in the log. For clients whose
	// records are unique: two writers of equal records would both be told that
	// they have won.
	ReplayContent
	// ReplayOff: never. What may be its own append is unknown to the client.
	ReplayOff
)

// Encoding says how the value of an expected-offset header is written. The
// text "end" is the same in all.
type Encoding int

const (
	// EncodingDecimal is ASCII decimal digits.
	EncodingDecimal Encoding = iota
	// EncodingInt64 is 8 bytes, big-endian.
	EncodingInt64
)

// RuleOptions are what a rule says beside its mode. The zero value of a field
// means its default.
type RuleOptions struct {
	// ErrorCode is the Kafka error code of the refusals taken, not reached and
	// predecessor refused: 1 (OFFSET_OUT_OF_RANGE, the default), 87
	// (INVALID_RECORD) or 44 (POLICY_VIOLATION). None of them is retried by a
	// client library.
	ErrorCode int16
	// Replay; zero: ReplayID.
	Replay Replay
	// ExpectedOffsetHeader and AppendIDHeader name the record headers; defaults
	// "expected-offset" and "append-id". At most 255 bytes, not the same.
	ExpectedOffsetHeader, AppendIDHeader string
	// Encoding of the expected offset; zero: EncodingDecimal.
	Encoding Encoding
	// AllowOldTimestamps gives up the refusal of batches that are older than
	// half of the brokers' producer.id.expiration.ms. It is not safe: the
	// brokers forget the fence with such a batch, and what another proxy or a
	// delayed packet brings next is appended at another offset than it expects.
	// That is noticed (a violation) and not prevented.
	AllowOldTimestamps bool
}

// Rule says what holds for the topics that match its pattern. The first match
// wins, for every client alike.
type Rule struct {
	// Topics is a glob in the syntax of path.Match: '*' matches any run of
	// characters.
	Topics string
	// TopicsRegexp is a regular expression in the syntax of package regexp
	// (RE2), which must match the whole name. Exactly one of the two is given.
	TopicsRegexp string
	// Mode is what holds for the topics that match.
	Mode Mode
	// Options go with it; ModeOff has none.
	Options RuleOptions
}

// Matcher tells of topics' names whether the rule is for them, unless one before it
// is. It may be called concurrently. It panics on a rule that Validate refuses.
func (r Rule) Matcher() func(topic string) bool {
	if r.TopicsRegexp != "" {
		return regexp.MustCompile(wholeName(r.TopicsRegexp)).MatchString
	}
	return func(topic string) bool {
		// A topic's name has no '/', which '*' does not match.
		ok, _ := path.Match(r.Topics, topic)
		return ok
	}
}
