package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// workloads are those that may ask for a sidecar: one of each kind, with and without.
const workloads = `
apiVersion: apps/v1
kind: %[1]s
metadata: {name: asks, annotations: {offsetproxy/inject: "true"}}
spec:
  template:
    spec:
      initContainers: [{name: own, image: own}]
      containers: [{name: application, image: own}]
      volumes: [{name: own, emptyDir: {}}]
---
apiVersion: apps/v1
kind: %[1]s
metadata: {name: asks-not}
spec:
  template:
    spec:
      containers: [{name: application, image: own}]
`

// TestSidecarIsAddedWhereAsked renders the component with workloads of other kinds.
func TestSidecarIsAddedWhereAsked(t *testing.T) {
	for _, kind := range []string{"Deployment", "StatefulSet", "Job"} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		component, err := filepath.Abs("../sidecar")
		if err != nil {
			t.Fatal(err)
		}
		// Kustomize takes no other paths than relative ones.
		if component, err = filepath.Rel(dir, component); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"workloads.yaml":     fmt.Sprintf(workloads, kind),
			"kustomization.yaml": "resources: [workloads.yaml]\ncomponents: [" + component + "]\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		for _, document := range renderDirectory(t, dir) {
			var w struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal(document, &w); err != nil {
				t.Fatal(err)
			}
			pod := w.Spec.Template.Spec
			switch w.Metadata.Name {
			case "asks":
				seen++
				// Before the application's own, which may want Kafka too.
				if len(pod.InitContainers) != 2 || pod.InitContainers[0].Name != "offsetproxy" || len(pod.Volumes) != 2 {
					t.Errorf("%s: got init containers and volumes\n%v\n%v", kind, pod.InitContainers, pod.Volumes)
				}
			case "asks-not":
				seen++
				if len(pod.InitContainers) != 0 || len(pod.Volumes) != 0 {
					t.Errorf("%s: it did not ask for init containers and volumes\n%v\n%v", kind, pod.InitContainers, pod.Volumes)
				}
			}
		}
		if seen != 2 {
			t.Errorf("%s: %d of 2 rendered", kind, seen)
		}
	}
}
