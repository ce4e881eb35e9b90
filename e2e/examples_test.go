package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// examples are the files that the README shows. Each is run with a proxy's
// address and a topic, appends "first" where it may, asks for the same offset
// for "second" and prints output.txt.
var examples = []struct {
	language  string
	needKafka bool // claims about a foreign client count on real Kafka only
	command   func(*testing.T) []string
}{
	{"go", false, goExample},
	{"kcat", true, kcatExample},
	{"python", true, pythonExample},
	{"java", true, javaExample},
	{"node", true, nodeExample},
}

// TestExamples runs them on an empty topic, and the log must hold what they
// printed: one record.
func TestExamples(t *testing.T) {
	besideOthers(t)
	if direct {
		t.Skip("nothing is refused without a proxy")
	}
	const topicPrefix = "example-"
	p := startProxy(t, "--require", topicPrefix+"*")
	for _, example := range examples {
		t.Run(example.language, func(t *testing.T) {
			if example.needKafka {
				requireKafka(t)
			}
			topic := topicPrefix + example.language
			createTopic(t, adminAt(t, p.bootstrap), topic, 1)
			got := commandOutput(t, example.command(t), p.bootstrap, topic)
			want, err := os.ReadFile(filepath.Join("../examples", example.language, "output.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("it printed\n%s\nwant\n%s", got, want)
			}
			if got, want := readLog(t, topic, 0), []logRecord{{0, "first"}}; !slices.Equal(got, want) {
				t.Errorf("the log holds %v, want %v", got, want)
			}
		})
	}
}

// TestEveryExampleIsRun holds the table above to the directory.
func TestEveryExampleIsRun(t *testing.T) {
	entries, err := os.ReadDir("../examples")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "patterns" { // these are in a table of their own
			got = append(got, entry.Name())
		}
	}
	for _, example := range examples {
		want = append(want, example.language)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("directories %q, run are %q", got, want)
	}
}

// TestExampleConfiguration checks the file that the README serves with.
func TestExampleConfiguration(t *testing.T) {
	if direct {
		t.Skip("asks the program")
	}
	got := commandOutput(t, []string{program}, "check-config", "../examples/serve.yaml")
	if !strings.Contains(got, "is good") {
		t.Errorf("it printed\n%s", got)
	}
}

func goExample(t *testing.T) []string { return builtExample(t, "./examples/go") }

func commitLogExample(t *testing.T) []string { return builtExample(t, "./examples/patterns/commitlog") }

func builtExample(t *testing.T, path string) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "example")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, path)
	build.Dir = ".."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return []string{binary}
}

func kcatExample(t *testing.T) []string {
	installed(t, "clients/kcat/install")
	return []string{"../examples/kcat/append.sh"}
}

func pythonExample(t *testing.T) []string { return pythonFile(t, "../examples/python/append.py") }

func loadExample(t *testing.T) []string { return pythonFile(t, "../examples/patterns/load/load.py") }

func pythonFile(t *testing.T, file string) []string {
	t.Helper()
	return []string{pythonClient(t)[0], "-B", file}
}

func javaExample(t *testing.T) []string { return javaSource(t, "../examples/java/Append.java") }

// leaseExample compiles it once: it is run several times.
func leaseExample(t *testing.T) []string {
	t.Helper()
	jars, classes := filepath.Join(requireKafka(t).Jars(), "*"), t.TempDir()
	commandOutput(t, []string{"javac", "-cp", jars, "-d", classes}, "../examples/patterns/lease/Lease.java")
	argv := javaSource(t, "Lease")
	argv[slices.Index(argv, "-cp")+1] = jars + ":" + classes
	return argv
}

func javaSource(t *testing.T, file string) []string {
	t.Helper()
	argv := javaClient(requireKafka(t).Jars())
	argv[len(argv)-1] = file
	return argv
}

func nodeExample(t *testing.T) []string { return nodeFile(t, "../examples/node/append.js") }

func aggregateExample(t *testing.T) []string {
	return nodeFile(t, "../examples/patterns/aggregate/aggregate.js")
}

func nodeFile(t *testing.T, file string) []string {
	t.Helper()
	cache, err := filepath.Abs("../.cache/node")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"env", "NODE_PATH=" + installed(t, "clients/node/install", cache), "node", file}
}

// installs are the paths that install scripts have printed, by command line: each is
// run once, and none while another runs, since they share directories.
var installs struct {
	sync.Mutex
	paths map[string]string
}

// installed runs an install script, if that was not done, and returns the path that
// it prints.
func installed(t *testing.T, script string, args ...string) string {
	t.Helper()
	installs.Lock()
	defer installs.Unlock()
	key := strings.Join(append([]string{script}, args...), " ")
	if path, done := installs.paths[key]; done {
		return path
	}
	install := exec.CommandContext(t.Context(), script, args...)
	install.Stderr = os.Stderr
	path, err := install.Output()
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	if installs.paths == nil {
		installs.paths = map[string]string{}
	}
	installs.paths[key] = strings.TrimSpace(string(path))
	return installs.paths[key]
}
