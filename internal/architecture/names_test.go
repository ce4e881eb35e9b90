package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// syntax gives the non-test files of every package, by name.
func syntax(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, p := range list(t) {
		for _, file := range p.GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files[p.name()+"/"+file] = tree
		}
	}
	return files
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for name, file := range syntax(t) {
		settings := strings.HasPrefix(name, "internal/config/")
		for _, fault := range undocumented(file, settings) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// undocumented tells which exported names of a file have no comment, and which
// comments begin with another name; those of functions are held to that
// whether exported or not. Fields of structs need a comment where they are
// settings: in a struct called …Config, or everywhere in the file.
func undocumented(file *ast.File, settings bool) []string {
	var faults []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			public := d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d)))
			faults = append(faults, named(d.Name.Name, d.Doc, public)...)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				faults = append(faults, undocumentedSpec(d, spec, settings)...)
			}
		}
	}
	return faults
}

func undocumentedSpec(d *ast.GenDecl, spec ast.Spec, settings bool) []string {
	var faults []string
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		doc := spec.Doc
		if doc == nil {
			doc = d.Doc
		}
		faults = named(spec.Name.Name, doc, spec.Name.IsExported())
		s, ok := spec.Type.(*ast.StructType)
		if !ok || !spec.Name.IsExported() || !settings && !strings.HasSuffix(spec.Name.Name, "Config") {
			break
		}
		for _, field := range s.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() && field.Doc == nil && field.Comment == nil {
					faults = append(faults, fmt.Sprintf("field %s.%s has no comment", spec.Name.Name, name.Name))
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
				faults = append(faults, name.Name+" has no comment")
			}
		}
	}
	return faults
}

func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// named tells what is wrong with the comment of a name, which may follow an
// article: "A Ticket is …".
func named(name string, doc *ast.CommentGroup, required bool) []string {
	if doc == nil {
		if required {
			return []string{name + " has no comment"}
		}
		return nil
	}
	words := strings.Fields(doc.Text())
	if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
		words = words[1:]
	}
	if len(words) == 0 || strings.TrimRight(words[0], ",:") != name {
		return []string{fmt.Sprintf("the comment of %s begins with another name", name)}
	}
	return nil
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	const source = `package p
// F does.
func F() {}
// h does.
func g() {}
func H() {}
type T struct{ A int }
// A Config is.
type Config struct {
	// A is.
	A int
	B int
}
func (c *Config) M() {}
func (t local) M() {}
// All of them.
const ( X = 1 )
var Y int
`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the comment of g begins with another name", "H has no comment", "T has no comment",
		"field Config.B has no comment", "M has no comment", "Y has no comment",
	}
	if got := undocumented(tree, false); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want = slices.Insert(want, 3, "field T.A has no comment")
	if got := undocumented(tree, true); !slices.Equal(got, want) {
		t.Errorf("where all are settings: got %q, want %q", got, want)
	}
}

// logKeys are what must not be a key of a log line, by the key that stands for
// the same thing everywhere.
var logKeys = map[string]string{"error": "err", "node_id": "node"}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

func TestLogKeysAreTheSameEverywhere(t *testing.T) {
	for name, file := range syntax(t) {
		for _, fault := range wrongLogKeys(file) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// wrongLogKeys looks at calls of the form x.Warn("message", "key", value, …).
func wrongLogKeys(file *ast.File) []string {
	var faults []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) || len(call.Args) == 0 {
			return true
		}
		if _, constant := call.Args[0].(*ast.BasicLit); !constant {
			return true // another function of that name
		}
		for i := 1; i < len(call.Args); i += 2 {
			literal, ok := call.Args[i].(*ast.BasicLit)
			if !ok {
				continue
			}
			key, _ := strconv.Unquote(literal.Value)
			if better, wrong := logKeys[key]; wrong {
				faults = append(faults, fmt.Sprintf("key %q is called %q elsewhere", key, better))
			} else if !snakeCase.MatchString(key) {
				faults = append(faults, fmt.Sprintf("key %q is not snake_case", key))
			}
		}
		return true
	})
	return faults
}

func TestWrongLogKeysAreFound(t *testing.T) {
	const source = `package p
func f() {
	log.Warn("text", "err", 1, "error", 2)
	x.log.Info("text", "nodeID", 1, "node", 2)
	log.Debug("text", attrs...)
	http.Error(w, "not a key", 503)
}`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`key "error" is called "err" elsewhere`, `key "nodeID" is not snake_case`}
	if got := wrongLogKeys(tree); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
