package deploy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one of the Dockerfile, with its lines joined.
type instruction struct{ keyword, args string }

// stage is what is between two FROM.
type stage struct {
	from         string
	instructions []instruction
}

// readDockerfile takes in what ours uses of the language; what it does not know fails
// where it is carried out.
func readDockerfile(t *testing.T) []stage {
	t.Helper()
	var stages []stage
	joined := ""
	for line := range strings.Lines(read(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if before, continued := strings.CutSuffix(line, `\`); continued {
			joined += before
			continue
		}
		keyword, args, _ := strings.Cut(joined+line, " ")
		joined = ""
		switch {
		case keyword == "FROM":
			stages = append(stages, stage{from: args})
		case len(stages) == 0:
			t.Fatalf("%s before FROM", keyword)
		default:
			last := &stages[len(stages)-1]
			last.instructions = append(last.instructions, instruction{keyword, strings.TrimSpace(args)})
		}
	}
	if len(stages) != 2 {
		t.Fatalf("%d stages, want 2", len(stages))
	}
	return stages
}

// all are the arguments of a stage's instructions of a kind.
func (s stage) all(keyword string) []string {
	var args []string
	for _, i := range s.instructions {
		if i.keyword == keyword {
			args = append(args, i.args)
		}
	}
	return args
}

// one is all of a kind that there must be once.
func (s stage) one(t *testing.T, keyword string) string {
	t.Helper()
	args := s.all(keyword)
	if len(args) != 1 {
		t.Fatalf("%s: %q, want one", keyword, args)
	}
	return args[0]
}

// ignored holds a path against .dockerignore: the last line that matches it, or a
// directory above it, decides.
func ignored(lines []string, name string) bool {
	out := false
	for _, line := range lines {
		line, back := strings.CutPrefix(line, "!")
		for part := name; part != "."; part = path.Dir(part) {
			if matchesIgnore(line, part) {
				out = !back
			}
		}
	}
	return out
}

func matchesIgnore(pattern, name string) bool {
	if rest, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
		pattern, name = rest, path.Base(name)
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

func TestIgnored(t *testing.T) {
	lines := []string{"*", "!cmd", "!go.mod", "**/*_test.go", "**/testdata"}
	for name, want := range map[string]bool{
		"go.mod": false, "go.sum": true, "cmd/a/main.go": false, "cmd/a/main_test.go": true, "cmd/a/testdata/x": true, "e2e/x.go": true,
	} {
		if got := ignored(lines, name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// checkOut copies into dir what an engine would be sent of a clean checkout.
func checkOut(t *testing.T, dir string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, ".dockerignore")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard")
	list.Dir = ".."
	output, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.Lines(string(output)) {
		name = strings.TrimSpace(name)
		if _, err := os.Stat(filepath.Join("..", name)); err == nil && !ignored(lines, name) {
			copyFile(t, filepath.Join("..", name), filepath.Join(dir, name))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

// build carries out the first stage in src, which stands for its WORKDIR, and returns
// that one's name.
func (s stage) build(t *testing.T, checkout, src string, arguments map[string]string) (workdir string) {
	t.Helper()
	env := buildEnvironment(t)
	for _, i := range s.instructions {
		switch i.keyword {
		case "WORKDIR":
			workdir = i.args
		case "ARG":
			name, value, _ := strings.Cut(i.args, "=")
			if given, ok := arguments[name]; ok {
				value = given
			}
			env = append(env, name+"="+value)
		case "COPY":
			fields := strings.Fields(i.args)
			for _, from := range fields[:len(fields)-1] {
				copyTree(t, filepath.Join(checkout, from), filepath.Join(src, fields[len(fields)-1], from))
			}
		case "RUN":
			run := exec.Command("/bin/sh", "-c", i.args)
			run.Dir, run.Env = src, env
			if output, err := run.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", i.args, err, output)
			}
		default:
			t.Fatalf("%s is not known to this test", i.keyword)
		}
	}
	return workdir
}

// Settings of the machine that a build here shares: where Go keeps what it has downloaded
// and compiled, and how it gets at what is missing.
var (
	sharedOfGo     = []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE"}
	sharedOfSystem = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)

// buildEnvironment is that of the image with Go, but for what is shared.
func buildEnvironment(t *testing.T) []string {
	t.Helper()
	output, err := exec.Command("go", append([]string{"env", "-json", "GOROOT"}, sharedOfGo...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]string
	if err := json.Unmarshal(output, &settings); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"PATH=" + filepath.Join(settings["GOROOT"], "bin") + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "GOTOOLCHAIN=local",
	}
	for _, name := range sharedOfGo {
		env = append(env, name+"="+settings[name])
	}
	for _, name := range sharedOfSystem {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// copyTree copies a file, or what is in a directory.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err == nil {
			copyFile(t, name, filepath.Join(to, relative))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// finish makes the last stage's file system in root.
func (s stage) finish(t *testing.T, root, workdir, src string) {
	t.Helper()
	for _, args := range s.all("COPY") {
		fields := strings.Fields(args)
		if len(fields) != 3 || fields[0] != "--from=build" {
			t.Fatalf("COPY %s: only files of the stage build are expected", args)
		}
		to := filepath.Join(root, fields[2])
		if ours, ok := strings.CutPrefix(fields[1], workdir+"/"); ok {
			copyFile(t, filepath.Join(src, ours), to)
			continue
		}
		// A file of the image with Go, which is not here. It has authorities of the same
		// origin as this machine, if that has any.
		content, err := os.ReadFile(fields[1])
		if err != nil {
			t.Logf("%s is not on this machine, and empty here", fields[1])
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tree lists a directory's files and their sizes.
func tree(t *testing.T, root string) (names []string, size int64) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			names, size = append(names, strings.TrimPrefix(name, root)), size+info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names, size
}

var goLine = regexp.MustCompile(`(?m)^go (\S+)$`)

// TestDockerfileBuildsWithTheGoOfTheModule: the image must not be older than go.mod asks
// for, since it downloads no other.
func TestDockerfileBuildsWithTheGoOfTheModule(t *testing.T) {
	want := "golang:" + goLine.FindStringSubmatch(read(t, "go.mod"))[1]
	if got := readDockerfile(t)[0].from; got != "--platform=$BUILDPLATFORM "+want+" AS build" {
		t.Errorf("FROM %s, want %s", got, want)
	}
}

// entrypoint is the program in the image; it takes no shell.
func (s stage) entrypoint(t *testing.T) string {
	t.Helper()
	var argv []string
	if err := json.Unmarshal([]byte(s.one(t, "ENTRYPOINT")), &argv); err != nil || len(argv) != 1 {
		t.Fatalf("ENTRYPOINT %s: %v", s.one(t, "ENTRYPOINT"), err)
	}
	return argv[0]
}

// number reads USER, which must name no file of the image's.
func (s stage) number(t *testing.T) (uid, gid int) {
	t.Helper()
	if n, err := fmt.Sscanf(s.one(t, "USER"), "%d:%d", &uid, &gid); n != 2 || uid == 0 || gid == 0 {
		t.Fatalf("USER %s: %v; want numbers that are not root's", s.one(t, "USER"), err)
	}
	return uid, gid
}

// read gives a file of the project as text.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
