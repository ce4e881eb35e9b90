package agreement

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Protocol is a version of how proxies meet in the brokers.
type Protocol int

// Current is the protocol of this program: a batch for offset E is stamped with the
// fence id, epoch 0 and the sequence E modulo 2³¹ where the brokers know nothing of
// the fence, and else with the sequence that follows theirs; acks are −1; one batch
// of a proxy and partition is upstream on a predicted end. It grows when a proxy of
// the version before could no longer be let near the same topics.
const Current Protocol = 1

// Name is what a part is called: as in the configuration file, if it stands there.
type Name string

const (
	// ProtocolPart is the [Protocol]: proxies that stamp otherwise do not refuse
	// each other's batches.
	ProtocolPart Name = "protocol"
	// FencePart is whether the fence is on. A proxy with --unsafe goes by its cache
	// alone and appends where others have promised an offset.
	FencePart Name = "fence"
	// FenceIDPart is the producer id that all batches are stamped with: the brokers
	// compare sequences within one producer id only, so proxies with different
	// ones do not see each other.
	FenceIDPart Name = "fence_id"
	// RulesPart is the rules, in their order, and the default mode: a topic that one
	// proxy fences and another does not is open, records whose header has another
	// name there have no condition, and old_timestamps has the brokers forget the
	// fence for all. Error codes and kinds of replay only decide what clients are
	// told, and belong to it all the same: a client that comes back through another
	// proxy must not be told otherwise.
	RulesPart Name = "rules"
	// ViewMaxAgePart is for how long a proxy sends by what it has read. The others
	// count on it when they judge for how long the brokers' memory of the fence has
	// to last (see ARCHITECTURE.md, "The view, and when it may be used").
	ViewMaxAgePart Name = "view_max_age"
	// AnswerMaxPart is for how long a stamped batch may be under way, and is part of
	// the same sum.
	AnswerMaxPart Name = "answer_max"
	// ClockSkewPart is how far clocks may be apart, and is part of the same sum.
	ClockSkewPart Name = "clock_skew"
	// LimitsPart is the brokers' limits on the operator's word (brokers.assert):
	// what one proxy reads and another is told must not contradict each other, or
	// one of the two serves topics on which the fence may be forgotten too soon.
	LimitsPart Name = "brokers.assert"
	// KindPart is what the brokers are on the operator's word (brokers.kind), which
	// decides where the fence begins on a partition that knows nothing of it.
	KindPart Name = "brokers.kind"
)

// Names lists all parts in the order in which they are shown.
func Names() []Name {
	return []Name{ProtocolPart, FencePart, FenceIDPart, RulesPart, ViewMaxAgePart, AnswerMaxPart, ClockSkewPart, LimitsPart, KindPart}
}

// Terms are what a proxy works by, as far as others must too.
type Terms struct {
	// Unsafe: the fence is off.
	Unsafe bool
	// FenceID is the producer id, in the form of the configuration.
	FenceID string
	// Rules is the text of the rules and the default mode in JSON, the same for the
	// same rules.
	Rules json.RawMessage
	// ViewMaxAge, AnswerMax and ClockSkew are the settings of these names.
	ViewMaxAge, AnswerMax, ClockSkew time.Duration
	// Asserted are the brokers' limits on the operator's word, by their names.
	Asserted map[string]string
	// BrokerKind is auto, kafka or kfake.
	BrokerKind string
}

// Hash stands for a value: 12 hexadecimal digits, enough to compare by eye.
type Hash string

// hashBytes is how much of a digest is shown.
const hashBytes = 6

// HashOf is the hash of a text.
func HashOf(text []byte) Hash {
	sum := sha256.Sum256(text)
	return Hash(hex.EncodeToString(sum[:hashBytes]))
}

// Part is one thing that proxies must have in common.
type Part struct {
	// Name is which.
	Name Name `json:"name"`
	// Hash stands for Value.
	Hash Hash `json:"hash"`
	// Value is what the proxy has, in JSON: it holds no secret.
	Value json.RawMessage `json:"value"`
}

// Agreement is what one proxy shows to be compared. It is not changed.
type Agreement struct {
	// Hash stands for all parts.
	Hash Hash `json:"hash"`
	// Parts in the order of Names.
	Parts []Part `json:"parts"`
}

// Of puts terms in the form in which they are compared. It panics if Rules is not
// JSON.
func Of(t Terms) Agreement {
	fence := "on"
	if t.Unsafe {
		fence = "off (--unsafe)"
	}
	if t.Asserted == nil {
		t.Asserted = map[string]string{}
	}
	var a Agreement
	for _, part := range []struct {
		name  Name
		value any
	}{
		{ProtocolPart, Current}, {FencePart, fence}, {FenceIDPart, t.FenceID}, {RulesPart, t.Rules},
		{ViewMaxAgePart, t.ViewMaxAge.String()}, {AnswerMaxPart, t.AnswerMax.String()}, {ClockSkewPart, t.ClockSkew.String()},
		{LimitsPart, t.Asserted}, {KindPart, t.BrokerKind},
	} {
		text, err := json.Marshal(part.value) // keys of maps are sorted
		if err != nil {
			panic(fmt.Sprintf("agreement: %s cannot be written: %v", part.name, err))
		}
		a.Parts = append(a.Parts, Part{part.name, HashOf(text), text})
	}
	a.Hash = hashOf(a.Parts)
	return a
}

// hashOf is the hash of all parts, by theirs and their names.
func hashOf(parts []Part) Hash {
	var all bytes.Buffer
	for _, p := range parts {
		fmt.Fprintf(&all, "%s=%s\n", p.Name, p.Hash)
	}
	return HashOf(all.Bytes())
}

// Find gives a part; false: the proxy does not show it.
func (a Agreement) Find(name Name) (Part, bool) {
	for _, p := range a.Parts {
		if p.Name == name {
			return p, true
		}
	}
	return Part{}, false
}

// ErrForm says that a text is not an agreement.
var ErrForm = errors.New("not an agreement")

// Parse reads what a proxy shows, which is not trusted: the hashes must be those of
// the values. Parts that this program does not know are kept. Errors wrap ErrForm.
func Parse(text []byte) (Agreement, error) {
	var a Agreement
	if err := json.Unmarshal(text, &a); err != nil {
		return Agreement{}, fmt.Errorf("%w: %w", ErrForm, err)
	}
	if len(a.Parts) == 0 {
		return Agreement{}, fmt.Errorf("%w: it has no parts", ErrForm)
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Value); err != nil {
			return Agreement{}, fmt.Errorf("%w: part %q: %w", ErrForm, p.Name, err)
		}
		p.Value = compact.Bytes()
		if got := HashOf(p.Value); got != p.Hash {
			return Agreement{}, fmt.Errorf("%w: part %q has the hash %q and a value of hash %q", ErrForm, p.Name, p.Hash, got)
		}
	}
	if got := hashOf(a.Parts); got != a.Hash {
		return Agreement{}, fmt.Errorf("%w: it has the hash %q and parts of hash %q", ErrForm, a.Hash, got)
	}
	return a, nil
}
