package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// Problem is one thing that is wrong.
type Problem struct {
	// Path names the setting, as in "limits.max_frame" or "rules[0].mode";
	// empty when the file as a whole is meant.
	Path string `json:"path,omitempty"`
	// Message says what is wrong and what to do.
	Message string `json:"message"`
	// Line counts from 1; 0 when the setting is not in a file.
	Line int `json:"line,omitempty"`
	// Column counts characters from 1; 0 when the setting is not in a file.
	Column int `json:"column,omitempty"`
	// Excerpt shows the place in the file, several lines; may be empty.
	Excerpt string `json:"excerpt,omitempty"`
}

// Error is all that is wrong with a configuration.
type Error struct {
	// Name is the file's, empty for flags.
	Name string
	// Problems are all of them, in the order of the file; at least one.
	Problems []Problem
}

// Error lists the problems, each with its place.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if e.Name != "" {
			b.WriteString(e.Name)
			if p.Line > 0 {
				fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
			}
			b.WriteString(": ")
		}
		if p.Path != "" {
			fmt.Fprintf(&b, "%s: ", p.Path)
		}
		b.WriteString(p.Message)
		if p.Excerpt != "" {
			b.WriteByte('\n')
			b.WriteString(p.Excerpt)
		}
	}
	return b.String()
}

// problemAt makes a problem with the place of a token, which may be nil.
func problemAt(at *token.Token, path, message string) Problem {
	p := Problem{Path: path, Message: message}
	if at != nil {
		p.Line, p.Column = at.Position.Line, at.Position.Column
		p.Excerpt = excerpt(&yaml.SyntaxError{Token: at})
	}
	return p
}

// excerpt is what the YAML library prints below its message, without secrets that stand
// there by mistake.
func excerpt(err yaml.Error) string {
	_, source, _ := strings.Cut(err.FormatError(false, true), "\n")
	lines := strings.Split(strings.TrimRight(source, " \n"), "\n")
	// The library ends some with a line that it has no text of.
	if last := len(lines) - 1; last > 0 && emptyLine.MatchString(lines[last]) {
		lines = lines[:last]
	}
	return masked(strings.Join(lines, "\n"))
}

var (
	emptyLine = regexp.MustCompile(`^ *[0-9]+ \| *$`)
	// secretKey is a key that is named as a secret, and secretPlace one that says where a
	// secret stands.
	secretKey   = regexp.MustCompile(`(?i)[a-z0-9_-]*(?:passw|secret|token)[a-z0-9_-]*["']? *:`)
	secretPlace = regexp.MustCompile(`(?i)_(?:file|env)["']? *:$`)
	numbered    = regexp.MustCompile(`^>? *[0-9]+ \| ( *)\S`)
)

// masked takes the values of keys that are named as secrets out of an excerpt, with the
// lines that they go on in. Settings that say where a secret stands are shown.
func masked(excerpt string) string {
	lines := strings.Split(excerpt, "\n")
	hidden := -1 // the indent of the key whose value is hidden
	for i, line := range lines {
		if m := numbered.FindStringSubmatch(line); m != nil && hidden >= 0 {
			if len(m[1]) > hidden {
				lines[i] = line[:strings.Index(line, "|")+1] + " …"
				continue
			}
			hidden = -1
		}
		for _, at := range secretKey.FindAllStringIndex(line, -1) {
			if secretPlace.MatchString(line[at[0]:at[1]]) {
				continue
			}
			if m := numbered.FindStringSubmatch(line); m != nil {
				hidden = len(m[1])
			}
			if lines[i] = line[:at[1]]; strings.TrimSpace(line[at[1]:]) != "" {
				lines[i] += " …"
			}
			break
		}
	}
	return strings.Join(lines, "\n")
}
