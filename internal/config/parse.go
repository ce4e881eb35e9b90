package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// later lists keys that the design has and this version does not, so
// that they are told apart from misspellings.
var later = map[string]bool{
	"tracing": true,
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
	var p pruner
	doc := p.decode(src)
	problems := p.problems
	if doc == nil {
		return nil, &Error{Name: name, Problems: problems}
	}
	settings, err := doc.Resolve()
	var wrong *Error
	if errors.As(err, &wrong) {
		for _, of := range wrong.Problems {
			if !p.spoiled[of.Path] {
				problems = append(problems, of)
			}
		}
	}
	if len(problems) > 0 {
		slices.SortStableFunc(problems, inFile)
		return nil, &Error{Name: name, Problems: problems}
	}
	return settings, nil
}

// inFile orders problems as the file does, and what has no place there last.
func inFile(a, b Problem) int {
	if a.Line == 0 || b.Line == 0 {
		return b.Line - a.Line
	}
	return cmp.Or(a.Line-b.Line, a.Column-b.Column)
}

// decode gives what of a file fits into a Document, and remembers what does not; no
// Document if the file cannot be read at all.
func (p *pruner) decode(src []byte) *Document {
	unreadable := func(of Problem) *Document {
		p.problems = append(p.problems, of)
		return nil
	}
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		if of, indented := tabIndented(src); indented {
			return unreadable(of)
		}
		return unreadable(syntaxProblem(err))
	}
	var body ast.Node
	bodies := 0
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			bodies++
			body = d.Body
		}
	}
	switch {
	case bodies == 0:
		return unreadable(Problem{Message: "the file holds no configuration"})
	case bodies > 1:
		return unreadable(Problem{Message: "several documents (---) in one file; only one is allowed"})
	}
	if !p.fits(body, reflect.TypeFor[Document](), "") {
		return nil
	}
	doc := new(Document)
	if err := understand(body, doc); err != nil {
		return unreadable(syntaxProblem(err))
	}
	return doc
}

// tabIndented finds the first line that a tab indents, in a file that cannot be read.
func tabIndented(src []byte) (Problem, bool) {
	number := 0
	for line := range bytes.Lines(src) {
		number++
		text := bytes.TrimLeft(line, " \t")
		indent := line[:len(line)-len(text)]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && len(bytes.TrimSpace(text)) > 0 && text[0] != '#' {
			shown := strings.TrimRight(strings.ReplaceAll(string(line), "\t", "→"), "\r\n")
			return Problem{
				Message: "a tab: YAML is indented by spaces", Line: number, Column: tab + 1,
				Excerpt: masked(fmt.Sprintf("> %2d | %s", number, shown)),
			}, true
		}
	}
	return Problem{}, false
}

// errNotUnderstood says that the decoder gave up. It panics at some files that
// the parser takes, such as those with a tag where an alias leads and no value.
var errNotUnderstood = errors.New("the file cannot be understood: look for tags (!) and aliases (*), which no configuration needs")

func understand(body ast.Node, doc *Document) (err error) {
	defer func() {
		if recover() != nil {
			err = errNotUnderstood
		}
	}()
	return yaml.NodeToValue(body, doc, yaml.Strict())
}

func syntaxProblem(err error) Problem {
	var at yaml.Error
	if !errors.As(err, &at) {
		return Problem{Message: err.Error()}
	}
	message := at.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		message = unknownKey(unknown.Token.Value, "")
	}
	p := Problem{Message: message, Excerpt: excerpt(at)}
	if t := at.GetToken(); t != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}
