package check

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// overlays are the directories that are applied, and how many objects each comes to: a
// manifest that kustomization.yaml does not name is not there.
var overlays = map[string]int{
	"example":       3,
	"gateway/ports": 8,
	"gateway/sni":   8,
	"monitoring":    3,
	"brokers":       1,
	"kafka":         3,
}

// restricted are those whose Pods must keep to Pod Security's strictest standard.
var restricted = []string{"example", "gateway/ports", "gateway/sni", "kafka"}

// render is what `kubectl apply -k` would apply, one document for each object.
func render(t *testing.T, overlay string) [][]byte {
	t.Helper()
	return renderDirectory(t, filepath.Join("..", overlay))
}

// renderDirectory is render for any directory.
func renderDirectory(t *testing.T, dir string) [][]byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(text, []byte("\n---\n"))
}

// TestManifestsAreValid applies everything, as far as that is possible without a cluster.
func TestManifestsAreValid(t *testing.T) {
	scheme := newScheme(t)
	for overlay, want := range overlays {
		t.Run(overlay, func(t *testing.T) {
			got := 0
			for _, document := range render(t, overlay) {
				accepted, err := accept(scheme, document)
				if err != nil {
					t.Error(err)
					continue
				}
				got++
				if deployment, ok := accepted.defaulted.(*v1.Deployment); ok && slices.Contains(restricted, overlay) {
					for _, fault := range podSecurity(t, &deployment.Spec.Template) {
						t.Errorf("Deployment %s: not restricted: %s", accepted.name, fault)
					}
				}
			}
			if got != want {
				t.Errorf("%d objects are valid, want %d", got, want)
			}
		})
	}
}

// podSecurity holds a Pod against the standard "restricted".
func podSecurity(t *testing.T, pod *corev1.PodTemplateSpec) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, result := range evaluator.EvaluatePod(policyapi.LevelVersion{Level: policyapi.LevelRestricted, Version: policyapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			faults = append(faults, result.ForbiddenReason+" ("+result.ForbiddenDetail+")")
		}
	}
	return faults
}

// TestEveryManifestIsRendered finds files that no kustomization.yaml names, and
// directories that nobody applies.
func TestEveryManifestIsRendered(t *testing.T) {
	named := map[string]string{} // what all kustomization.yaml hold, by directory
	var files []string
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		if entry.Name() != "kustomization.yaml" {
			files = append(files, path)
			return nil
		}
		text, err := os.ReadFile(path)
		named[filepath.Dir(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("only %d manifests found", len(files))
	}
	for _, file := range files {
		if !strings.Contains(named[filepath.Dir(file)], filepath.Base(file)+"\n") {
			t.Errorf("%s is not named by the kustomization.yaml beside it", file)
		}
	}
	all := ""
	for dir := range overlays {
		all += dir + "\n"
	}
	for _, text := range named {
		all += text
	}
	for dir := range named {
		if !strings.Contains(all, filepath.Base(dir)+"\n") {
			t.Errorf("nothing applies or includes %s", dir)
		}
	}
}
