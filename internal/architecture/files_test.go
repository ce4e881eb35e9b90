package architecture

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file holds one noun and can be read at one sitting.
const (
	maxLines     = 500
	maxTestLines = 800
)

// vagueNames say nothing about what is inside.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "types"}

func TestFilesAreShortAndNamedForTheirContent(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "../.." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		seen++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		limit := maxLines
		if strings.HasSuffix(path, "_test.go") {
			limit = maxTestLines
		}
		if lines := bytes.Count(text, []byte{'\n'}); lines > limit {
			t.Errorf("%s has %d lines, more than %d", path, lines, limit)
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(entry.Name(), ".go"), "_test")
		for _, vague := range vagueNames {
			if stem == vague || filepath.Base(filepath.Dir(path)) == vague {
				t.Errorf("%s is named %s, which says nothing", path, vague)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("only %d Go files were seen; is the path to the root right?", seen)
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		documented := false
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("\n// Package ")) || bytes.HasPrefix(text, []byte("// Package ")) ||
				bytes.Contains(text, []byte("// Command ")) {
				documented = true
			}
		}
		if !documented {
			t.Errorf("package %s says nowhere what it is for", p.name())
		}
	}
}
