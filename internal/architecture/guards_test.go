package architecture

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	guardName = regexp.MustCompile(`(?m)^\tguard([A-Z]\w*) `)
	guardLine = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| (.*) \\|$")
	upperCase = regexp.MustCompile(`[A-Z]`)
)

// kebab writes connAge as conn-age.
func kebab(name string) string {
	return strings.TrimPrefix(strings.ToLower(upperCase.ReplaceAllString(name, "-$0")), "-")
}

// TestGuardsAreListedWithTheirTests holds the appendix of docs/semantics.md to
// the guards that there are, and to tests that take them away.
func TestGuardsAreListedWithTheirTests(t *testing.T) {
	_, appendix, ok := strings.Cut(read(t, "docs/semantics.md"), "## Appendix: what each promise rests on\n")
	if !ok {
		t.Fatal("docs/semantics.md has no appendix of guards")
	}
	var listed []string
	inModel := read(t, "fence/guard_test.go") + read(t, "fence/guardproducer_test.go") + read(t, "fence/guardvaried_test.go")
	for _, line := range guardLine.FindAllStringSubmatch(appendix, -1) {
		name, tests := line[1], line[2]
		listed = append(listed, name)
		for _, test := range strings.FieldsFunc(tests, func(r rune) bool { return strings.ContainsRune(";, ", r) }) {
			switch {
			case test == "model" && !strings.Contains(inModel, `{"`+strings.ReplaceAll(name, "-", " ")+`", guard`):
				t.Errorf("%s: no model test takes it away", name)
			case strings.HasSuffix(test, ".txt") && !strings.Contains(read(t, "fence/testdata/"+test), "broken="+name):
				t.Errorf("%s: %s does not take it away", name, test)
			}
		}
	}
	var want []string
	source := read(t, "fence/guard.go")
	for _, found := range guardName.FindAllStringSubmatch(source, -1) {
		name := kebab(found[1])
		if name == "conn-age" {
			name = "connection-age"
		}
		if !strings.Contains(source, `"`+name+`": guard`+found[1]+`,`) {
			t.Errorf("guardNamed does not know %s", name)
		}
		want = append(want, name)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the appendix lists\n%q\nand there are\n%q", listed, want)
	}
}
