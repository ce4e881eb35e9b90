package config

import (
	"fmt"
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

// excerpt is what the YAML library prints below its message.
func excerpt(err yaml.Error) string {
	_, source, _ := strings.Cut(err.FormatError(false, true), "\n")
	return strings.TrimRight(source, " \n")
}
