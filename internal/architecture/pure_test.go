package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// purePackages decide and do nothing else: no I/O, no clock, no goroutine that
// would need a lock, no chance. That is what lets tests drive them through any
// order of events.
var purePackages = []string{"partitionstate", "fence", "internal/agreement"}

var impureImports = []string{
	"net", "os", "sync", "sync/atomic", "log", "log/slog", "context", "syscall",
	"math/rand", "math/rand/v2", "crypto/rand", "runtime", "unsafe",
}

// clockNames are the parts of package time that read or wait for a clock; its
// types and constants are harmless.
var clockNames = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"}

func TestTheCoreIsPure(t *testing.T) {
	for _, p := range list(t) {
		if !slices.Contains(purePackages, p.name()) {
			continue
		}
		for _, file := range p.GoFiles {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range impurities(tree) {
				t.Errorf("%s/%s: %s", p.name(), file, fault)
			}
		}
	}
}

// impurities tells what a file of a pure package must not hold.
func impurities(file *ast.File) []string {
	var faults []string
	clock := ""
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(impureImports, path) {
			faults = append(faults, "imports "+path)
		}
		if path == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, "starts a goroutine")
		case *ast.SelectorExpr:
			if base, ok := n.X.(*ast.Ident); ok && clock != "" && base.Name == clock && slices.Contains(clockNames, n.Sel.Name) {
				faults = append(faults, fmt.Sprintf("uses time.%s", n.Sel.Name))
			}
		}
		return true
	})
	if clock == "." {
		faults = append(faults, "imports time with a dot")
	}
	return faults
}

func TestImpuritiesAreFound(t *testing.T) {
	const source = `package p
import ("sync"; clock "time")
var limit = 3 * clock.Second
func f() { go f(); _ = clock.Now() }
var _ sync.Mutex`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"imports sync", "starts a goroutine", "uses time.Now"}
	if got := impurities(tree); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
