package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// later lists keys that the design has and this version does not, so
// that they are told apart from misspellings.
var later = map[string]bool{
	"tls": true, "upstream_tls": true, "sasl": true, "probe_topic": true, "replay": true,
	"refusal_codes": true, "header_names": true, "tracing": true,
}

// Load reads and understands a file. Errors: *Error, or that of the file.
func Load(name string) (*Settings, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(src) > maxFileBytes {
		return nil, &Error{Name: name, Problems: []Problem{{Message: "larger than 1 MiB: not a configuration of this program"}}}
	}
	return Parse(name, src)
}

// Parse understands the contents of a file; name is for messages only. Errors:
// *Error.
func Parse(name string, src []byte) (*Settings, error) {
	doc, problem := decode(src)
	if problem != nil {
		return nil, &Error{Name: name, Problems: []Problem{*problem}}
	}
	settings, err := doc.Resolve()
	var wrong *Error
	if errors.As(err, &wrong) {
		wrong.Name = name
	}
	return settings, err
}

func decode(src []byte) (*Document, *Problem) {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, syntaxProblem(err)
	}
	bodies := 0
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			bodies++
		}
	}
	switch {
	case bodies == 0:
		return nil, &Problem{Message: "the file holds no configuration"}
	case bodies > 1:
		return nil, &Problem{Message: "several documents (---) in one file; only one is allowed"}
	}
	doc := new(Document)
	if err := yaml.UnmarshalWithOptions(src, doc, yaml.Strict()); err != nil {
		return nil, syntaxProblem(err)
	}
	return doc, nil
}

func syntaxProblem(err error) *Problem {
	var at yaml.Error
	if !errors.As(err, &at) {
		return &Problem{Message: err.Error()}
	}
	message := at.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		message = fmt.Sprintf("unknown key %q", unknown.Token.Value)
		switch {
		case later[unknown.Token.Value]:
			message = fmt.Sprintf("%q is not in this version", unknown.Token.Value)
		case unknown.Token.Value == "unsafe":
			message = "unsafe is only a flag of serve and demo, so that no file switches the fence off by itself"
		}
	}
	p := &Problem{Message: message, Excerpt: excerpt(at)}
	if t := at.GetToken(); t != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}
