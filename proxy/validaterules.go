package proxy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkRules checks the rules and fills in their options' defaults, in a slice
// of its own.
func (c *Config) checkRules() error {
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		r := &c.Rules[i]
		field, reason := r.check()
		if field == "" {
			r.Options = r.Options.inForce()
			field, reason = r.Options.check()
		}
		if field != "" {
			return badField(fmt.Sprintf("Rules[%d].%s", i, field), "%s", reason)
		}
	}
	if !c.Default.known() {
		return badField("Default", "unknown mode %d", c.Default)
	}
	return nil
}

func (m Mode) known() bool { return ModeOff <= m && m <= ModeRequire }

// check gives the field that is wrong, if any.
func (r *Rule) check() (field, reason string) {
	switch {
	case r.Topics != "" && r.TopicsRegexp != "":
		return "TopicsRegexp", "a rule has a glob or a regular expression, not both"
	case r.TopicsRegexp != "":
		// Alone, so that it cannot end the group in which it will stand.
		if _, err := regexp.Compile(r.TopicsRegexp); err != nil {
			return "TopicsRegexp", err.Error()
		}
		if _, err := regexp.Compile(wholeName(r.TopicsRegexp)); err != nil {
			return "TopicsRegexp", err.Error()
		}
	default:
		if _, err := path.Match(r.Topics, ""); err != nil || r.Topics == "" {
			return "Topics", fmt.Sprintf("bad pattern %q", r.Topics)
		}
	}
	if !r.Mode.known() {
		return "Mode", fmt.Sprintf("unknown mode %d", r.Mode)
	}
	return "", ""
}

// refusalCodes are those that a rule can choose: no client library retries them.
var refusalCodes = []int16{kerr.OffsetOutOfRange.Code, kerr.InvalidRecord.Code, kerr.PolicyViolation.Code}

// maxHeaderName bounds the name of a header that carries a condition, in bytes.
const maxHeaderName = 255

// check gives the field that is wrong, if any; o is in force.
func (o *RuleOptions) check() (field, reason string) {
	if !slices.Contains(refusalCodes, o.ErrorCode) {
		return "Options.ErrorCode", fmt.Sprintf("%d is not one of %d", o.ErrorCode, refusalCodes)
	}
	if o.Replay < ReplayID || o.Replay > ReplayOff {
		return "Options.Replay", fmt.Sprintf("unknown replay %d", o.Replay)
	}
	if o.Encoding < EncodingDecimal || o.Encoding > EncodingInt64 {
		return "Options.Encoding", fmt.Sprintf("unknown encoding %d", o.Encoding)
	}
	for _, name := range []struct{ field, value string }{
		{"Options.ExpectedOffsetHeader", o.ExpectedOffsetHeader}, {"Options.AppendIDHeader", o.AppendIDHeader},
	} {
		if n := len(name.value); n > maxHeaderName {
			return name.field, fmt.Sprintf("%d bytes long, at most %d", n, maxHeaderName)
		}
		if !utf8.ValidString(name.value) {
			return name.field, fmt.Sprintf("%q is not UTF-8, as names of headers are", name.value)
		}
	}
	if o.AppendIDHeader == o.ExpectedOffsetHeader {
		return "Options.AppendIDHeader", fmt.Sprintf("%q is the header of the expected offset", o.AppendIDHeader)
	}
	return "", ""
}
