package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"

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
	doc, problems := decode(src)
	if doc == nil {
		return nil, &Error{Name: name, Problems: problems}
	}
	settings, err := doc.Resolve()
	var wrong *Error
	if errors.As(err, &wrong) {
		problems = append(problems, wrong.Problems...)
	}
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, &Error{Name: name, Problems: problems}
	}
	return settings, nil
}

// decode gives what of a file fits into a Document, and what does not; no
// Document if the file cannot be read at all.
func decode(src []byte) (*Document, []Problem) {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, []Problem{syntaxProblem(err)}
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
		return nil, []Problem{{Message: "the file holds no configuration"}}
	case bodies > 1:
		return nil, []Problem{{Message: "several documents (---) in one file; only one is allowed"}}
	}
	var p pruner
	if !p.fits(body, reflect.TypeFor[Document](), "") {
		return nil, p.problems
	}
	doc := new(Document)
	if err := understand(body, doc); err != nil {
		return nil, append(p.problems, syntaxProblem(err))
	}
	return doc, p.problems
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
		message = unknownKey(unknown.Token.Value)
	}
	p := Problem{Message: message, Excerpt: excerpt(at)}
	if t := at.GetToken(); t != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}
