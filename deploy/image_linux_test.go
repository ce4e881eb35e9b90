package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// emptyRoot is a root directory with the image's files, and whom the program runs as.
type emptyRoot struct {
	dir, program string
	uid, gid     int
}

// command runs the program with the directory as its root, as a user who may not write
// there. Who is not root needs user namespaces for it.
func (r emptyRoot) command(args ...string) *exec.Cmd {
	cmd := exec.Command(r.program, args...)
	cmd.Dir, cmd.Env = "/", []string{} // Docker gives it a PATH, which leads nowhere
	attr := &syscall.SysProcAttr{Chroot: r.dir, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.gid)}
	} else {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: r.uid, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: r.gid, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return cmd
}

// ended is what a run left.
type ended struct {
	status         int
	stdout, stderr string
}

// run runs the program to its end.
func (r emptyRoot) run(t *testing.T, args ...string) ended {
	t.Helper()
	cmd := r.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %q in an empty root: %v", args, err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestImage builds it as the Dockerfile says, from a clean checkout, and has the program
// refuse an append in a root directory that holds the image's files alone.
func TestImage(t *testing.T) {
	stages := readDockerfile(t)
	const number = "1.2.3-test"
	checkout, src := t.TempDir(), t.TempDir()
	checkOut(t, checkout)
	workdir := stages[0].build(t, checkout, src, map[string]string{"VERSION": number, "TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH})
	last := stages[1]
	if last.from != "scratch" {
		t.Errorf("FROM %s, want scratch: nothing but what is copied", last.from)
	}
	root := emptyRoot{dir: t.TempDir(), program: last.entrypoint(t)}
	root.uid, root.gid = last.number(t)
	last.finish(t, root.dir, workdir, src)
	files, size := tree(t, root.dir)
	if want := []string{"/LICENSE", "/etc/ssl/certs/ca-certificates.crt", "/offsetproxy"}; !slices.Equal(files, want) {
		t.Errorf("the image holds %q, want %q", files, want)
	}
	mustBeStatic(t, filepath.Join(root.dir, root.program))
	mustSay(t, size)
	readOnly(t, root.dir)

	if err := root.command("version").Run(); errors.Is(err, os.ErrPermission) {
		t.Skip("this user may make no user namespaces, so that nothing can be run in an empty root: run as root, or allow them")
	}
	got := root.run(t, "version", "--output", "json")
	var told struct{ Version, Platform string }
	if err := json.Unmarshal([]byte(got.stdout), &told); err != nil || told.Version != number || told.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("version: got %+v, %v, want %s", got, err, number)
	}
	mustRefuse(t, root)
	if after, _ := tree(t, root.dir); !slices.Equal(after, files) {
		t.Errorf("the program has written files: %q", after)
	}
}

// mustBeStatic has no loader and no libraries.
func mustBeStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %q, %v", libraries, err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program needs a loader")
		}
	}
	if file.Section(".debug_info") != nil || file.Section(".symtab") != nil {
		t.Error("the program has symbols, which double its size")
	}
}

// statedSize is how documents say how large the image is.
var statedSize = regexp.MustCompile(`(\d+) MB,\s+(?:static|no shell)`)

// mustSay holds the size that is stated against the real one, roughly.
func mustSay(t *testing.T, size int64) {
	t.Helper()
	t.Logf("the image has %.1f MB", float64(size)/1e6)
	for _, guide := range []string{"README.md", "docs/sidecar.md", "docs/gateway.md"} {
		found := statedSize.FindStringSubmatch(read(t, guide))
		if found == nil {
			t.Errorf("%s does not say how large the image is: %d MB", guide, size/1e6)
			continue
		}
		var stated float64
		_, _ = fmt.Sscan(found[1], &stated)
		if real := float64(size) / 1e6; stated < real*0.85 || stated > real*1.15 {
			t.Errorf("%s says that the image has %s MB, and it has %.1f", guide, found[1], real)
		}
	}
}

// readOnly takes the right to write from everybody.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // so that it can be removed
}

// mustRefuse runs the program with an embedded broker, and appends twice.
func mustRefuse(t *testing.T, root emptyRoot) {
	t.Helper()
	listen := freePort(t)
	dev, output := root.command("dev", "--listen", listen), &bytes.Buffer{}
	said, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	dev.Stderr = output
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, said)
	}()
	defer func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		<-closed
		if err := dev.Wait(); err != nil {
			t.Errorf("dev ended with %v\n%s", err, output)
		}
	}()
	awaitPort(t, listen)
	if got := root.run(t, "next", "--bootstrap", listen, "--topic", "events"); got != (ended{0, "0\n", ""}) {
		t.Errorf("next: got %+v", got)
	}
	if got := root.run(t, "append", "--bootstrap", listen, "--topic", "events", "--expect", "0", "first"); got != (ended{0, "0\n", ""}) {
		t.Errorf("first: got %+v", got)
	}
	got := root.run(t, "append", "--bootstrap", listen, "--topic", "events", "--expect", "0", "second")
	if got != (ended{3, "", "refused: taken: expected=0 next=1\n"}) {
		t.Errorf("second: got %+v", got)
	}
}

// freePort finds an address with a port before others that are free.
func freePort(t *testing.T) string {
	t.Helper()
	for range 50 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all := []net.Listener{first}
		port := first.Addr().(*net.TCPAddr).Port
		for i := 1; i <= 4; i++ {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i)); err == nil {
				all = append(all, l)
			}
		}
		for _, l := range all {
			_ = l.Close()
		}
		if len(all) == 5 {
			return first.Addr().String()
		}
	}
	t.Fatal("no five ports in a row are free")
	return ""
}

// awaitPort waits until somebody listens.
func awaitPort(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens at %s: %v", address, err)
		}
		time.Sleep(20 * time.Millisecond) // another process gives nothing to wait on
	}
}
