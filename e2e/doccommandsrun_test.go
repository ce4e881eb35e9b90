package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// notCommands are indented blocks that show something else, by their first word.
var notCommands = []string{"expected-offset:", "append-id:"}

// Addresses as documents name them: the proxy's, and the brokers'.
const (
	shownProxy   = "127.0.0.1:9092"
	shownBrokers = "127.0.0.1:19092"
)

// TestCommandsOfDocuments runs every command that the README and docs/ show, or checks
// what it names: a command that nobody knows how to check fails.
func TestCommandsOfDocuments(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	if brokers.kafka != nil {
		t.Skip("says nothing of Kafka; it runs on the embedded broker")
	}
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"../README.md"}, documents...) {
		document := strings.TrimPrefix(filepath.ToSlash(path), "../")
		t.Run(document, func(t *testing.T) {
			commands, blocks := readDocument(t, document)
			shell := documentShell{t: t}
			for i := range commands {
				shell.try(&commands[i])
			}
			for _, block := range blocks {
				checkYAML(t, block)
			}
		})
	}
}

// documentShell does what a reader does who goes through a document from above.
type documentShell struct {
	t *testing.T
	// dev is the address of the newest `offsetproxy dev`, empty before the first.
	dev string
}

var errNotThere = errors.New("it does not exist")

// try runs or checks one command.
func (s *documentShell) try(c *shellCommand) {
	s.t.Helper()
	if len(c.argv) == 0 || slices.Contains(notCommands, c.argv[0]) {
		return
	}
	argv := c.argv
	for len(argv) > 0 {
		one := argv
		if i := slices.Index(argv, "|"); i >= 0 {
			one, argv = argv[:i], argv[i+1:]
		} else {
			argv = nil
		}
		known, err := s.check(one)
		if !known {
			s.t.Errorf("%s:%d: nobody has said how to check `%s`: see check in this test", c.document, c.line, c.text)
		} else if err != nil {
			s.t.Errorf("%s:%d: `%s`: %v", c.document, c.line, c.text, err)
		}
	}
	if err := s.run(c); err != nil {
		s.t.Errorf("%s:%d: `%s`: %v", c.document, c.line, c.text, err)
	}
}

// check looks whether what a command names exists; known: it is a kind of command that
// can be looked at so.
func (s *documentShell) check(argv []string) (known bool, err error) {
	if args, ok := ofProgram(argv); ok {
		return true, errors.Join(flagsExist(args), filesExist(args))
	}
	name, args := argv[0], argv[1:]
	switch {
	case name == "make":
		return true, targetsExist(args)
	case name == "go" && args[0] == "run":
		return true, exists(args[1])
	case name == "go" && args[0] == "test":
		return true, testsExist(args[1:])
	case name == "kubectl":
		if i := slices.Index(args, "--"); i >= 0 {
			known, err := s.check(args[i+1:])
			return known, errors.Join(err, objectsExist(args[:i]))
		}
		return true, objectsExist(args)
	case name == "docker" && args[0] == "build":
		return true, imageExists(args)
	case name == "docker" && args[0] == "push":
		return true, nil
	case name == "java" && strings.HasPrefix(args[2], "org.apache.kafka.tools."):
		return true, nil // of Kafka's own
	case name == "java", filepath.Base(name) == "python", name == "node", strings.HasPrefix(name, "examples/"):
		return true, filesExist(argv)
	case name == "python3" && args[0] == "-m":
		return true, nil // of Python's own
	case filepath.Base(name) == "pip":
		pinned, err := os.ReadFile("clients/python/requirements.txt")
		if err == nil && !strings.Contains(string(pinned), args[1]+"\n") {
			err = fmt.Errorf("the tests use another version: %w", errNotThere)
		}
		return true, err
	case name == "npm":
		return true, exists(args[slices.Index(args, "--prefix")+1] + "/package.json")
	case filepath.Base(name) == "kafka-topics.sh", name == "kafka-acls.sh", name == "printf":
		return true, nil
	}
	return false, nil
}

// run runs what takes little time, where everything that it needs is there.
func (s *documentShell) run(c *shellCommand) error {
	args, ours := ofProgram(c.argv)
	example := len(c.argv) > 2 && c.argv[0] == "go" && strings.HasPrefix(c.argv[2], "./examples/")
	switch {
	case ours && args[0] == "dev":
		return s.startDev(args[1:])
	case ours && args[0] == "serve":
		return s.serve(args)
	case ours && args[0] == "check-config" && exists(args[1]) == nil:
		return s.ends(c, []string{args[0], "../" + args[1]})
	case ours && (args[0] == "append" || args[0] == "next") && s.dev != "":
		return s.ends(c, args)
	case example && s.dev != "":
		argv := builtExample(s.t, c.argv[2])
		if got := commandOutput(s.t, argv, s.at(c.argv[3:])...); got == "" {
			return errors.New("it printed nothing")
		}
	}
	return nil
}

// at has arguments name the addresses of what runs.
func (s *documentShell) at(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], shownProxy, s.dev)
	}
	return args
}

// ends runs the program to its end. What the document shows, if it does, it must print;
// else it must succeed.
func (s *documentShell) ends(c *shellCommand, args []string) error {
	got := runProgram(s.t, s.at(args)...)
	switch {
	case c.output != nil && got.stdout+got.stderr != *c.output:
		return fmt.Errorf("got %+v, want %q", got, *c.output)
	case c.output == nil && got.status != exitDone:
		return fmt.Errorf("got %+v", got)
	}
	return nil
}

// startDev runs dev until the test ends.
func (s *documentShell) startDev(args []string) error {
	port, err := kafkacluster.FreePorts(8)
	if err != nil {
		return err
	}
	s.dev = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	startCommand(s.t, append([]string{program, "dev", "--listen", s.dev}, args...))
	waitFor(s.t, "dev serves", time.Minute, func() error {
		conn, err := dialRaw(s.dev)
		if err != nil {
			return err
		}
		defer conn.close()
		_, err = conn.metadata()
		return err
	})
	return nil
}

// serve runs a proxy before the brokers with the flags or the file that are shown, if it
// is one for brokers on this machine.
func (s *documentShell) serve(args []string) error {
	p := newProxyProcess(s.t)
	args = slices.Clone(args[1:])
	if i := slices.Index(args, "--config"); i >= 0 && exists(args[i+1]) == nil {
		text, err := os.ReadFile("../" + args[i+1])
		if err != nil {
			return err
		}
		shown := strings.NewReplacer(shownBrokers, brokers.addresses()[0], shownProxy, p.bootstrap).Replace(string(text))
		args[i+1] = filepath.Join(s.t.TempDir(), "serve.yaml")
		if err := os.WriteFile(args[i+1], []byte(shown), 0o600); err != nil {
			return err
		}
	} else if i := slices.Index(args, shownBrokers); i >= 0 {
		args[i] = brokers.bootstrap
		args = append(args, "--listen", p.bootstrap, "--broker-ports", p.brokerPorts())
		if i := slices.Index(args, shownProxy); i >= 0 {
			args = slices.Delete(args, i-1, i+1)
		}
	} else {
		return nil
	}
	p.start(s.t, program, args...)
	p.stop(s.t)
	return nil
}

// ofProgram gives the arguments of a command of ours.
func ofProgram(argv []string) (args []string, ok bool) {
	if len(argv) > 3 && argv[0] == "go" && argv[1] == "run" && argv[2] == "./cmd/offsetproxy" {
		return argv[3:], true
	}
	return argv[1:], filepath.Base(argv[0]) == "offsetproxy" && len(argv) > 1
}

// helps are the help texts, by command.
var helps struct {
	sync.Mutex
	texts map[string]string
}

// flagsExist looks for the flags in the help of the command.
func flagsExist(args []string) error {
	helps.Lock()
	defer helps.Unlock()
	if helps.texts == nil {
		helps.texts = map[string]string{}
	}
	help, ok := helps.texts[args[0]]
	if !ok {
		output, err := exec.Command(program, args[0], "--help").Output()
		if err != nil {
			return fmt.Errorf("command %s: %w", args[0], err)
		}
		help = string(output)
		helps.texts[args[0]] = help
	}
	var missing error
	for _, arg := range args[1:] {
		if flag, _, _ := strings.Cut(arg, "="); strings.HasPrefix(flag, "--") &&
			!regexp.MustCompile(`(?m)`+regexp.QuoteMeta(flag)+`([=\s,]|$)`).MatchString(help) {
			missing = errors.Join(missing, fmt.Errorf("flag %s: %w", flag, errNotThere))
		}
	}
	return missing
}

// exists looks for a file of the repository.
func exists(path string) error {
	if _, err := os.Stat(filepath.Join("..", path)); err != nil {
		return fmt.Errorf("%s: %w", path, errNotThere)
	}
	return nil
}

// filesExist looks for those that are named, by where they would be.
func filesExist(args []string) (missing error) {
	for _, arg := range args {
		for _, directory := range []string{"examples/", "deploy/", "docs/", "e2e/"} {
			if strings.HasPrefix(arg, directory) {
				missing = errors.Join(missing, exists(arg))
			}
		}
	}
	return missing
}

func targetsExist(args []string) (missing error) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		return err
	}
	for _, arg := range args {
		want := "\n" + arg + ":"
		if name, _, set := strings.Cut(arg, "="); set {
			want = name
		}
		if !strings.Contains(string(makefile), want) {
			missing = errors.Join(missing, fmt.Errorf("%s: %w", arg, errNotThere))
		}
	}
	return missing
}

// testsExist looks for the tests of -run in the package, the last argument that is one.
func testsExist(args []string) error {
	var pattern, directory string
	for i, arg := range args {
		if arg == "-run" {
			pattern = strings.Trim(args[i+1], "^$")
		}
		if strings.HasPrefix(arg, "./") {
			directory = arg
		}
	}
	files, err := filepath.Glob(filepath.Join("..", directory, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "func "+pattern+"(") {
			return nil
		}
	}
	return fmt.Errorf("%s in %s: %w", pattern, directory, errNotThere)
}

// objectsExist looks for the kustomizations that kubectl is given, and in the manifests for
// the objects that it names.
func objectsExist(args []string) (missing error) {
	var manifests strings.Builder
	err := filepath.WalkDir("../deploy/k8s", func(path string, entry os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			text, err := os.ReadFile(path)
			manifests.Write(text)
			return err
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, arg := range args {
		if arg == "-k" {
			missing = errors.Join(missing, exists(args[i+1]+"/kustomization.yaml"))
		}
		if name, is := strings.CutPrefix(arg, "deployment/"); is && !strings.Contains(manifests.String(), "name: "+name+"\n") {
			missing = errors.Join(missing, fmt.Errorf("%s: %w", arg, errNotThere))
		}
	}
	return missing
}

func imageExists(args []string) (missing error) {
	dockerfile, err := os.ReadFile("../Dockerfile")
	if err != nil {
		return err
	}
	for i, arg := range args {
		if arg != "--build-arg" {
			continue
		}
		if name, _, _ := strings.Cut(args[i+1], "="); !strings.Contains(string(dockerfile), "ARG "+name) {
			missing = errors.Join(missing, fmt.Errorf("build argument %s: %w", name, errNotThere))
		}
	}
	return missing
}

// checkYAML has check-config look at what documents show of configurations and users.
func checkYAML(t *testing.T, block string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shown.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(block, "# users.yaml\n"):
		settings := fmt.Sprintf("bootstrap: k:9092\nlisteners: [{name: a, listen: '127.0.0.1:9092', sasl: {mechanisms: [SCRAM-SHA-256], users_file: %q}}]\n", file)
		file = filepath.Join(t.TempDir(), "offsetproxy.yaml")
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := runProgram(t, "check-config", file); got.status != exitDone || strings.Contains(got.stdout, "would not start") {
			t.Errorf("users\n%s\nare not taken: %+v", block, got)
		}
	case strings.Contains("\n"+block, "\nbootstrap:"):
		if got := runProgram(t, "check-config", file); got.status != exitDone {
			t.Errorf("configuration\n%s\nis not taken: %+v", block, got)
		}
	default:
		t.Errorf("nobody has said what this is:\n%s", block)
	}
}
