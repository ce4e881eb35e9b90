package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/offsetproxy/offsetproxy"

// mayImport lists for each package of the project, by its path below the
// module, which others it may import, directly or through others. Arrows only
// point down. A package that is missing here fails the test: a new package is a
// decision.
var mayImport = map[string][]string{
	"partitionstate": {},
	"wire":           {},
	"fence":          {"partitionstate"},
	"proxy/prober":   {"wire", "partitionstate"},
	"proxy":          {"wire", "fence", "proxy/prober", "partitionstate"},

	"internal/config":     {"proxy", "wire", "fence", "proxy/prober", "partitionstate", "internal/tlsfiles", "internal/agreement"},
	"internal/agreement":  {},
	"internal/resources":  {"proxy", "wire", "fence", "proxy/prober", "partitionstate"},
	"internal/doctor":     {"proxy", "wire", "fence", "proxy/prober", "partitionstate", "internal/resources", "internal/config", "internal/tlsfiles", "internal/agreement"},
	"internal/tlsfiles":   {},
	"internal/filewatch":  {},
	"internal/localusers": {},
	"internal/appender":   {},
	"internal/race":       {"internal/appender"},
	"internal/verify":     {"internal/appender"},
	"internal/embedded":   {},
	"internal/version":    {},
	"cmd/offsetproxy": {
		"internal/agreement", "internal/doctor", "internal/appender", "internal/config", "internal/embedded", "internal/filewatch", "internal/localusers", "internal/resources", "internal/tlsfiles", "internal/race", "internal/verify", "internal/version",
		"proxy", "wire", "fence", "proxy/prober", "partitionstate",
	},

	"internal/architecture":                  {},
	"internal/certtest":                      {},
	"internal/kafkatest":                     {"wire"},
	"internal/kafkacluster":                  {},
	"internal/kafkacluster/cmd/kafkacluster": {"internal/kafkacluster"},

	// For readers: only what a user of Kafka has.
	"examples/go":                 {},
	"examples/patterns/commitlog": {},

	// Tests of the image and of the manifests.
	"deploy": {},

	// Black box: the built program is all they know of the product.
	"e2e":   {"internal/kafkacluster"},
	"bench": {"internal/kafkacluster", "internal/appender"},
}

// testMayImport adds what the tests of a package may import besides.
var testMayImport = map[string][]string{
	"deploy":                {"internal/config"},
	"proxy":                 {"internal/certtest", "internal/kafkatest", "internal/embedded", "internal/appender", "internal/localusers", "internal/race"},
	"proxy/prober":          {"internal/kafkatest", "internal/embedded"},
	"cmd/offsetproxy":       {"internal/certtest", "internal/kafkatest"},
	"internal/tlsfiles":     {"internal/certtest"},
	"internal/doctor":       {"internal/certtest"},
	"e2e":                   {"internal/certtest"},
	"bench":                 {"internal/embedded"},
	"internal/verify":       {"internal/kafkatest", "internal/embedded", "proxy"},
	"internal/kafkacluster": {"internal/certtest"},
}

// testOnly packages must not get into the program.
var testOnly = []string{"internal/certtest", "internal/kafkatest", "internal/kafkacluster", "internal/architecture", "e2e"}

// outsideOf lists the packages outside the standard library that a layer may
// import directly, by prefix; a package that is not listed may import any.
var outsideOf = map[string][]string{
	"partitionstate":     {"github.com/hashicorp/golang-lru/v2"},
	"fence":              {},
	"internal/agreement": {},
	"wire": {
		"github.com/twmb/franz-go/pkg/kmsg",
		"github.com/klauspost/compress",
		"github.com/pierrec/lz4",
	},
}

// goPackage is what go list tells about a package.
type goPackage struct {
	ImportPath   string
	Dir          string
	Standard     bool
	Imports      []string
	Deps         []string
	GoFiles      []string
	TestImports  []string
	XTestImports []string
}

func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = "../.."
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// ours keeps the packages of this module, by name, without the package itself:
// external tests import the package they test.
func ours(paths []string, self string) []string {
	var names []string
	for _, path := range paths {
		name, ok := strings.CutPrefix(path, module+"/")
		if ok && name != self {
			names = append(names, name)
		}
	}
	return names
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range list(t) {
		allowed, known := mayImport[p.name()]
		if !known {
			t.Errorf("package %s has no line in mayImport", p.name())
			continue
		}
		for _, dependency := range ours(p.Deps, p.name()) {
			if !slices.Contains(allowed, dependency) {
				t.Errorf("%s depends on %s, which mayImport does not allow", p.name(), dependency)
			}
		}
		allowed = slices.Concat(allowed, testMayImport[p.name()])
		for _, dependency := range ours(slices.Concat(p.TestImports, p.XTestImports), p.name()) {
			if !slices.Contains(allowed, dependency) {
				t.Errorf("the tests of %s import %s, which testMayImport does not allow", p.name(), dependency)
			}
		}
	}
}

func TestTheProgramHoldsNoTestCode(t *testing.T) {
	for _, p := range list(t) {
		if p.name() != "cmd/offsetproxy" {
			continue
		}
		for _, dependency := range ours(p.Deps, p.name()) {
			if slices.Contains(testOnly, dependency) {
				t.Errorf("the program contains %s", dependency)
			}
		}
		if slices.Contains(p.Deps, "testing") {
			t.Error("the program contains package testing")
		}
	}
}

func TestLayersImportOnlyTheirOwnDependencies(t *testing.T) {
	for _, p := range list(t) {
		allowed, limited := outsideOf[p.name()]
		if !limited {
			continue
		}
		for _, path := range p.Imports {
			domain, _, _ := strings.Cut(path, "/")
			outside := strings.Contains(domain, ".") && !strings.HasPrefix(path, module+"/")
			if outside && !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s imports %s, which outsideOf does not allow", p.name(), path)
			}
		}
	}
}

// TestTheTablesForbidWhatTheyShould guards the tables against an edit that
// would let everything pass.
func TestTheTablesForbidWhatTheyShould(t *testing.T) {
	for _, forbidden := range [][2]string{
		{"wire", "partitionstate"}, {"partitionstate", "wire"}, {"fence", "wire"}, {"wire", "fence"},
		{"fence", "proxy"}, {"partitionstate", "fence"}, {"proxy/prober", "proxy"}, {"proxy", "internal/config"},
		{"e2e", "proxy"}, {"e2e", "wire"},
	} {
		if slices.Contains(mayImport[forbidden[0]], forbidden[1]) {
			t.Errorf("mayImport lets %s import %s", forbidden[0], forbidden[1])
		}
	}
}
