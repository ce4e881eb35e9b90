package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
)

// secret is a directory of certificates as Kubernetes mounts one: each file is a
// symbolic link through ..data, which is replaced when all files of the next version
// are there, and the version before is removed then.
type secret struct {
	pemFiles
	dir      string
	versions int
}

func newSecret(t *testing.T) *secret {
	dir := t.TempDir()
	return &secret{pemFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}, dir, 0}
}

// write has an authority issue the next version; trust is the other side's.
func (s *secret) write(t *testing.T, own, trust *certtest.Authority, names ...string) {
	t.Helper()
	data, next := filepath.Join(s.dir, "..data"), filepath.Join(s.dir, "..data_tmp")
	before, _ := os.Readlink(data)
	s.versions++
	version := filepath.Join(s.dir, fmt.Sprintf("..version_%d", s.versions))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(version, 0o755))
	inside := func(file string) string { return filepath.Join(version, filepath.Base(file)) }
	pemFiles{inside(s.cert), inside(s.key), inside(s.ca)}.write(own, trust, names...)
	must(os.Symlink(filepath.Base(version), next))
	must(os.Rename(next, data))
	if before != "" {
		must(os.RemoveAll(filepath.Join(s.dir, before)))
		return
	}
	for _, file := range []string{s.cert, s.key, s.ca} {
		must(os.Symlink(filepath.Join("..data", filepath.Base(file)), file))
	}
}
