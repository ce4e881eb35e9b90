package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// statusDoc is what people read of /status.json. The table in it is made here.
var statusDoc = filepath.Join("..", "..", "docs", "status.md")

// Between these lines of it is the table.
const (
	fieldsBegin = "<!-- fields: written by go test ./cmd/offsetproxy -run TestStatusFieldsAreDocumented -rewrite -->\n"
	fieldsEnd   = "<!-- end of fields -->\n"
)

// statusSources hold the types of the document.
var statusSources = []string{"statuspagedocument.go", filepath.Join("..", "..", "proxy", "status.go")}

// fieldComments gives the comments of fields, by type and name.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, file := range statusSources {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						comments[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return comments
}

var goName = regexp.MustCompile(`\b[A-Z]\w*\b`)

// fieldRows describes the fields of a type and of those below it.
func fieldRows(t *testing.T, of reflect.Type, path string, comments map[string]string) (rows []string) {
	t.Helper()
	jsonName := func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	}
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			rows = append(rows, fieldRows(t, f.Type, path, comments)...)
			continue
		}
		if !f.IsExported() {
			continue
		}
		name := jsonName(f)
		if name == "" || name != strings.ToLower(name) {
			t.Errorf("%s.%s has the name %q in JSON", of, f.Name, name)
		}
		comment := comments[of.Name()+"."+f.Name]
		if comment == "" {
			t.Errorf("%s.%s has no comment", of, f.Name)
		}
		comment = goName.ReplaceAllStringFunc(comment, func(word string) string {
			if other, ok := of.FieldByName(word); ok && word != f.Name && jsonName(other) != "" {
				return "`" + jsonName(other) + "`"
			}
			return word
		})
		for _, verb := range []string{" is ", " are ", ": "} {
			if meaning, ok := strings.CutPrefix(comment, f.Name+verb); ok {
				comment = meaning
				break
			}
		}
		if first, rest, _ := strings.Cut(comment, " "); first == f.Name && !strings.HasPrefix(rest, "has ") {
			comment = rest
		}
		comment = strings.ToUpper(comment[:1]) + comment[1:]
		form, below, suffix := formOf(f.Type)
		if strings.Contains(f.Tag.Get("json"), ",omitempty") {
			form += ", may be missing"
		}
		comment = strings.ReplaceAll(strings.ReplaceAll(comment, "; nil:", "; missing:"), "; empty:", "; missing:")
		rows = append(rows, fmt.Sprintf("| `%s%s` | %s | %s |\n", path, name, form, comment))
		if below != nil {
			rows = append(rows, fieldRows(t, below, path+name+suffix+".", comments)...)
		}
	}
	return rows
}

// formOf says what a value is in JSON, and which type's fields are below it.
func formOf(of reflect.Type) (form string, below reflect.Type, suffix string) {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return "time", nil, ""
	case of.Kind() == reflect.Pointer:
		return formOf(of.Elem())
	case of.Kind() == reflect.Struct:
		return "object", of, ""
	case of.Kind() == reflect.Slice:
		item, below, _ := formOf(of.Elem())
		return "list of " + item + "s", below, "[]"
	case of.Kind() == reflect.Map:
		value, _, _ := formOf(of.Elem())
		return value + "s by name", nil, ""
	case of.Kind() == reflect.String:
		return "text", nil, ""
	case of.Kind() == reflect.Bool:
		return "true or false", nil, ""
	}
	return "number", nil, ""
}

// TestStatusFieldsAreDocumented holds docs/status.md against the types.
func TestStatusFieldsAreDocumented(t *testing.T) {
	rows := fieldRows(t, reflect.TypeFor[statusDocument](), "", fieldComments(t))
	if len(rows) < 100 {
		t.Errorf("got %d fields, and there are more", len(rows))
	}
	want := "\n| Field | Form | Meaning |\n|---|---|---|\n" + strings.Join(rows, "") + "\n"
	text, err := os.ReadFile(statusDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), fieldsBegin)
	got, after, ends := strings.Cut(rest, fieldsEnd)
	if !begins || !ends {
		t.Fatalf("%s has no lines %q and %q", statusDoc, fieldsBegin, fieldsEnd)
	}
	if got == want {
		return
	}
	if *rewrite {
		if err := os.WriteFile(statusDoc, []byte(before+fieldsBegin+want+fieldsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not describe the fields as the code does: run go test ./cmd/offsetproxy -run TestStatusFieldsAreDocumented -rewrite", statusDoc)
}
