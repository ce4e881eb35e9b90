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
		if field, reason := r.check(); field != "" {
			return badField(fmt.Sprintf("Rules[%d].%s", i, field), "%s", reason)
		}
		r.Options = r.Options.inForce()
	}
	if !c.Default.known() {
		return badField("Default", "unknown mode %d", c.Default)
	}
	return nil
}

// Validate checks a rule by itself. The error is a *ConfigError with the field
// as in "Options.ErrorCode".
func (r Rule) Validate() error {
	if field, reason := r.check(); field != "" {
		return badField(field, "%s", reason)
	}
	return nil
}

func (m Mode) known() bool { return ModeOff <= m && m <= ModeRequire }

// check gives the field that is wrong, if any.
func (r *Rule) check() (field, reason string) {
	switch {
	case r.Topics == "" && r.TopicsRegexp == "":
		return "Topics", "missing: a topic's name or a pattern such as orders.*"
	case r.Topics != "" && r.TopicsRegexp != "":
		return "TopicsRegexp", "a rule has a glob or a regular expression, not both"
	case r.TopicsRegexp != "":
		// Alone first, so that it cannot end the group in which it will stand.
		for _, expression := range []string{r.TopicsRegexp, wholeName(r.TopicsRegexp)} {
			if _, err := regexp.Compile(expression); err != nil {
				return "TopicsRegexp", fmt.Sprintf("%q is not a regular expression (RE2): %v", r.TopicsRegexp, err)
			}
		}
	default:
		if _, err := path.Match(r.Topics, ""); err != nil {
			return "Topics", fmt.Sprintf("%q is not a pattern: * and ? stand for characters, [a-z] for one of several", r.Topics)
		}
	}
	if !r.Mode.known() {
		return "Mode", fmt.Sprintf("unknown mode %d", r.Mode)
	}
	options := r.Options.inForce()
	return options.check()
}

// refusalCodes are those that a rule can choose: no client library retries them.
var refusalCodes = []int16{kerr.OffsetOutOfRange.Code, kerr.InvalidRecord.Code, kerr.PolicyViolation.Code}

// maxHeaderName bounds the name of a header that carries a condition, in bytes.
const maxHeaderName = 255

// check gives the field that is wrong, if any; o is in force.
func (o *RuleOptions) check() (field, reason string) {
	if !slices.Contains(refusalCodes, o.ErrorCode) {
		return "Options.ErrorCode", fmt.Sprintf("%d is not one of 1 (OFFSET_OUT_OF_RANGE), 44 (POLICY_VIOLATION) and 87 (INVALID_RECORD)", o.ErrorCode)
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
			return name.field, fmt.Sprintf("a header's name of %d bytes; at most %d", n, maxHeaderName)
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
