package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/offsetproxy/offsetproxy/internal/config"
)

// yamlFiles are the manifests, and the configurations between them.
func yamlFiles(t *testing.T) (manifests, configurations []string) {
	t.Helper()
	err := filepath.WalkDir("k8s", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir() || filepath.Ext(name) != ".yaml":
		case entry.Name() == "offsetproxy.yaml":
			configurations = append(configurations, name)
		default:
			manifests = append(manifests, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return manifests, configurations
}

// flagName is a flag's where help explains it.
var flagName = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)`)

// TestFlagsOfManifestsExist reads what containers of the program are started with.
func TestFlagsOfManifestsExist(t *testing.T) {
	flags := map[string]bool{}
	for _, found := range flagName.FindAllStringSubmatch(read(t, "cmd/offsetproxy/testdata/help-serve.golden"), -1) {
		flags[found[1]] = true
	}
	manifests, _ := yamlFiles(t)
	seen := 0
	for _, file := range manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
			var manifest any
			if err := yaml.Unmarshal([]byte(document), &manifest); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, args := range programArgs(manifest) {
				seen++
				if fault := unknownArgs(args, flags); fault != "" {
					t.Errorf("%s: %s", file, fault)
				}
			}
		}
	}
	if seen < 2 {
		t.Errorf("only %d containers run the program", seen)
	}
}

// programArgs finds containers of the image, wherever they are.
func programArgs(node any) [][]string {
	var all [][]string
	switch node := node.(type) {
	case map[string]any:
		if node["image"] == "offsetproxy" {
			var args []string
			list, _ := node["args"].([]any)
			for _, arg := range list {
				args = append(args, fmt.Sprint(arg))
			}
			all = append(all, args)
		}
		for _, below := range node {
			all = append(all, programArgs(below)...)
		}
	case []any:
		for _, below := range node {
			all = append(all, programArgs(below)...)
		}
	}
	return all
}

// unknownArgs says what is no argument of serve.
func unknownArgs(args []string, flags map[string]bool) string {
	if len(args) == 0 || args[0] != "serve" {
		return fmt.Sprintf("args %q do not begin with serve", args)
	}
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") || !flags[name] {
			return fmt.Sprintf("serve has no %s", arg)
		}
	}
	return ""
}

func TestUnknownArgs(t *testing.T) {
	flags := map[string]bool{"config": true}
	for _, c := range []struct {
		args  []string
		known bool
	}{
		{[]string{"serve", "--config=x"}, true}, {[]string{"serve"}, true}, {nil, false}, {[]string{"server"}, false},
		{[]string{"serve", "--configs=x"}, false}, {[]string{"serve", "x"}, false},
	} {
		if got := unknownArgs(c.args, flags) == ""; got != c.known {
			t.Errorf("%q: got %v, want %v", c.args, got, c.known)
		}
	}
}

// TestConfigurationsOfManifestsAreValid checks them as check-config does: unknown keys are
// errors. All proxies of a cluster need the same rules, so the manifests have.
func TestConfigurationsOfManifestsAreValid(t *testing.T) {
	_, configurations := yamlFiles(t)
	var hashes []string
	for _, file := range configurations {
		settings, err := config.Load(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if len(settings.Notes) > 0 {
			t.Errorf("%s: notes %q", file, settings.Notes)
		}
		hashes = append(hashes, settings.Effective().RulesHash())
	}
	if len(hashes) < 3 || len(slices.Compact(hashes)) != 1 {
		t.Errorf("%q have rules of the hashes %q", configurations, hashes)
	}
}

// TestBrokenConfigurationsAreRefused is its twin.
func TestBrokenConfigurationsAreRefused(t *testing.T) {
	_, configurations := yamlFiles(t)
	for _, file := range configurations {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		broken := strings.Replace(string(text), "drain_timeout:", "drain_time:", 1)
		if _, err := config.Parse(file, []byte(broken)); err == nil {
			t.Errorf("%s: accepted with drain_time", file)
		}
	}
}
