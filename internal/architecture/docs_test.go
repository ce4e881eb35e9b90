package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fileBlock is a fenced block that shows a whole file, named in a comment that
// readers do not see:
//
//	<!-- file: examples/serve.yaml -->
//	```yaml
//	…
//	```
var fileBlock = regexp.MustCompile("(?ms)^<!-- file: (\\S+) -->\n```\\w+\n(.*?)^```$")

// notShown are files of examples/ that need not be in the README.
var notShown = []string{"examples/node/package.json"}

// TestREADMEShowsTheFilesThatAreRun lets nobody read an example that is not the
// one that the end-to-end tests run.
func TestREADMEShowsTheFilesThatAreRun(t *testing.T) {
	shown := slices.Clone(notShown)
	for _, block := range fileBlock.FindAllStringSubmatch(read(t, "README.md"), -1) {
		shown = append(shown, block[1])
		if got, want := block[2], read(t, block[1]); got != want {
			t.Errorf("README.md shows as %s\n%s\nbut the file holds\n%s", block[1], got, want)
		}
	}
	var files []string
	err := filepath.WalkDir("../../examples", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return fs.SkipDir // whoever tried the Node example has one
		}
		if err == nil && entry.IsDir() && entry.Name() == "patterns" {
			return fs.SkipDir // docs/patterns.md has links to them, and a test that all are run
		}
		if err == nil && !entry.IsDir() {
			files = append(files, filepath.ToSlash(strings.TrimPrefix(path, "../../")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(shown)
	if !slices.Equal(shown, files) {
		t.Errorf("README.md shows\n%q\nand examples/ holds\n%q", shown, files)
	}
}

var (
	link         = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	innerLink    = regexp.MustCompile(`\]\(#([^)]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_-]`)
	htmlAnchor   = regexp.MustCompile(`<a id="([^"]+)"></a>`)

	makeTarget = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)\b`)
	codeSpan   = regexp.MustCompile("(?s)```.*?```|`[^`]+`")
)

// documents are what people read first: those of the root and all of docs/.
func documents(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("documents %q, %v", found, err)
	}
	all := []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"}
	for _, path := range found {
		all = append(all, "docs/"+filepath.Base(path))
	}
	return all
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	for _, document := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, document), -1) {
			target := filepath.Join("../..", filepath.Dir(document), found[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", document, found[1], err)
				continue
			}
			if anchor := strings.TrimPrefix(found[2], "#"); anchor != "" && strings.HasSuffix(found[1], ".md") && !anchors(t, target)[anchor] {
				t.Errorf("%s links to %s#%s, which has no such heading", document, found[1], anchor)
			}
		}
		for _, found := range innerLink.FindAllStringSubmatch(read(t, document), -1) {
			if !anchors(t, filepath.Join("../..", document))[found[1]] {
				t.Errorf("%s links to its heading #%s, which it does not have", document, found[1])
			}
		}
	}
}

// anchors are what links into a document may name: its headings, as they are shown on
// the web, and what it has as HTML.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		all[notInAnchors.ReplaceAllString(strings.ReplaceAll(strings.ToLower(found[1]), " ", "-"), "")] = true
	}
	for _, found := range htmlAnchor.FindAllStringSubmatch(string(text), -1) {
		all[found[1]] = true
	}
	return all
}

func TestDocumentsNameTargetsThatExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, document := range documents(t) {
		for _, code := range codeSpan.FindAllString(read(t, document), -1) {
			for _, found := range makeTarget.FindAllStringSubmatch(code, -1) {
				if !strings.Contains(makefile, "\n"+found[1]+":") {
					t.Errorf("%s names `make %s`, which the Makefile does not have", document, found[1])
				}
			}
		}
	}
}

// dependencyLine is a line of CONTRIBUTING.md's list of dependencies.
var dependencyLine = regexp.MustCompile("(?m)^- `([a-z]+\\.[^` ]+)`: \\S")

// TestEveryDependencyHasAReason compares CONTRIBUTING.md's list with what the
// project imports, which does not depend on what go.mod calls indirect.
func TestEveryDependencyHasAReason(t *testing.T) {
	modules := required(read(t, "go.mod"))
	var direct []string
	for _, p := range list(t) {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if module := moduleOf(path, modules); module != "" {
				direct = append(direct, module)
			}
		}
	}
	slices.Sort(direct)
	direct = slices.Compact(direct)
	var explained []string
	for _, found := range dependencyLine.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		explained = append(explained, found[1])
	}
	for _, module := range direct {
		if !slices.Contains(explained, module) {
			t.Errorf("CONTRIBUTING.md does not say why the project depends on %s", module)
		}
	}
	for _, module := range explained {
		if !slices.Contains(direct, module) {
			t.Errorf("CONTRIBUTING.md explains %s, which the project does not import", module)
		}
	}
}

var requirement = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+) v\S+`)

// required lists the modules of a go.mod.
func required(gomod string) []string {
	var modules []string
	for _, found := range requirement.FindAllStringSubmatch(gomod, -1) {
		modules = append(modules, found[1])
	}
	return modules
}

// moduleOf is the module that holds a package, or nothing.
func moduleOf(path string, modules []string) string {
	holder := ""
	for _, module := range modules {
		if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(holder) {
			holder = module
		}
	}
	return holder
}

func TestModuleOf(t *testing.T) {
	modules := required("require a.org/one v1.0.0\nrequire (\n\tb.org/x v1.0.0\n\tb.org/x/y v1.2.3 // indirect\n)\n")
	for path, want := range map[string]string{
		"a.org/one": "a.org/one", "a.org/one/sub": "a.org/one", "b.org/x/y/z": "b.org/x/y", "b.org/x/yz": "b.org/x",
		"b.org/xy": "", "net/http": "",
	} {
		if got := moduleOf(path, modules); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// read gives a file of the project as text.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
