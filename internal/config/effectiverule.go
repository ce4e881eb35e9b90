package config

import (
	"fmt"
	"strings"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// EffectiveRule is one rule of an Effective, in the words of the file.
type EffectiveRule struct {
	// Topics is the glob, if the rule has one.
	Topics string `json:"topics,omitempty"`
	// TopicsRegexp is the regular expression, if the rule has one.
	TopicsRegexp string `json:"topics_regexp,omitempty"`
	// Mode is off, observe, enforce or require.
	Mode string `json:"mode"`
	// ErrorCode is error_code.
	ErrorCode int16 `json:"error_code"`
	// Replay is id, content or off.
	Replay string `json:"replay"`
	// ExpectedOffsetHeader is the name of a record header.
	ExpectedOffsetHeader string `json:"expected_offset_header"`
	// ExpectedOffsetEncoding is decimal or int64.
	ExpectedOffsetEncoding string `json:"expected_offset_encoding"`
	// AppendIDHeader is the name of a record header.
	AppendIDHeader string `json:"append_id_header"`
	// OldTimestamps is refuse or allow.
	OldTimestamps string `json:"old_timestamps"`
}

func effectiveRule(r proxy.Rule) EffectiveRule {
	o := r.Options
	e := EffectiveRule{
		Topics: r.Topics, TopicsRegexp: r.TopicsRegexp, Mode: modeNames[r.Mode],
		ErrorCode: o.ErrorCode, Replay: replayNames[o.Replay],
		ExpectedOffsetHeader: o.ExpectedOffsetHeader, ExpectedOffsetEncoding: encodingNames[o.Encoding],
		AppendIDHeader: o.AppendIDHeader, OldTimestamps: oldNames[0],
	}
	if o.AllowOldTimestamps {
		e.OldTimestamps = oldNames[1]
	}
	return e
}

// chosen lists the options that are not the defaults.
func (e EffectiveRule) chosen() string {
	usual := effectiveRule(proxy.Rule{})
	var parts []string
	for _, o := range []struct{ key, value, usual string }{
		{"error_code", fmt.Sprint(e.ErrorCode), "1"},
		{"replay", e.Replay, usual.Replay},
		{"expected_offset_header", e.ExpectedOffsetHeader, "expected-offset"},
		{"expected_offset_encoding", e.ExpectedOffsetEncoding, usual.ExpectedOffsetEncoding},
		{"append_id_header", e.AppendIDHeader, "append-id"},
		{"old_timestamps", e.OldTimestamps, usual.OldTimestamps},
	} {
		if o.value != o.usual {
			parts = append(parts, o.key+" "+o.value)
		}
	}
	return strings.Join(parts, ", ")
}

// modeWords say what the modes do, by their names.
var modeWords = map[string]string{
	"off":     "off: forwarded untouched",
	"observe": "observe: forwarded untouched, and counted what the fence would say",
	"enforce": "enforce: all appends are fenced; those without a condition go to the end",
	"require": "require: conditional appends are fenced, all others refused",
}
