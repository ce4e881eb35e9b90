// Package deploy holds the tests of what is deployed: they build the image as the
// Dockerfile says, without an engine of containers, run what comes out in a root
// directory that holds nothing else, and hold the manifests' flags and settings against
// the program. What Kubernetes makes of the manifests is tested in k8s/check.
package deploy
