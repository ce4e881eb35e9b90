package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// manifests is where the configurations of the manifests are.
const manifests = "../deploy/k8s"

// configMap is a directory as Kubernetes mounts a ConfigMap: its file is a symbolic link
// through ..data, and a change replaces that one.
type configMap struct {
	dir      string
	file     string
	versions int
}

func newConfigMap(t *testing.T) *configMap {
	dir := t.TempDir()
	return &configMap{dir: dir, file: filepath.Join(dir, "offsetproxy.yaml")}
}

// write makes text the file's content, at once.
func (m *configMap) write(t *testing.T, text string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m.versions++
	version := fmt.Sprintf("..version_%d", m.versions)
	must(os.Mkdir(filepath.Join(m.dir, version), 0o755))
	must(os.WriteFile(filepath.Join(m.dir, version, filepath.Base(m.file)), []byte(text), 0o644))
	must(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if m.versions == 1 {
		must(os.Symlink(filepath.Join("..data", filepath.Base(m.file)), m.file))
	}
}

// manifestConfig is a configuration of the manifests, in which what is of a cluster of
// Kubernetes is replaced by what is here: pairs of text, the first of which must be there.
func manifestConfig(t *testing.T, file string, replaced ...string) string {
	t.Helper()
	text := readText(t, filepath.Join(manifests, file))
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(text, replaced[i]) {
			t.Fatalf("%s does not hold %q", file, replaced[i])
		}
		text = strings.ReplaceAll(text, replaced[i], replaced[i+1])
	}
	return text
}

// mustRefuse appends one record with the program's own command, and one more that is too
// late.
func (p *proxyProcess) mustRefuse(t *testing.T, topic string) {
	t.Helper()
	for _, c := range []struct {
		value string
		want  ended
	}{
		{"first", ended{exitDone, "0\n", ""}},
		{"second", ended{exitRefused, "", "refused: taken: expected=0 next=1\n"}},
	} {
		if got := runProgram(t, "append", "--bootstrap", p.bootstrap, "--topic", topic, "--expect", "0", c.value); got != c.want {
			t.Errorf("append %s: got %+v, want %+v", c.value, got, c.want)
		}
	}
	mustHold(t, topic, "first")
}

// mustBeHealthy asks what the probes of the manifests ask.
func (p *proxyProcess) mustBeHealthy(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/livez", "/readyz"} {
		response, err := scraper.Get("http://" + p.admin() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s", path, response.Status)
		}
	}
}

// metricName is one that a guide names.
var metricName = regexp.MustCompile(`offsetproxy_[a-z_]+`)

// mustHaveMetrics looks for those that a guide names.
func (p *proxyProcess) mustHaveMetrics(t *testing.T, guide string) {
	t.Helper()
	response, err := scraper.Get("http://" + p.admin() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := metricName.FindAllString(readText(t, guide), -1)
	if len(names) < 3 {
		t.Errorf("%s names only %q", guide, names)
	}
	for _, name := range names {
		if !bytes.Contains(text, []byte("# TYPE "+name+" ")) {
			t.Errorf("%s names %s, which the proxy does not have", guide, name)
		}
	}
}

// TestManifestsSidecar starts the sidecar's configuration, and the example application
// beside it as often as the manifest says.
func TestManifestsSidecar(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic, ofExample = "manifests-sidecar", "manifests-example"
	p, file := newProxyProcess(t), newConfigMap(t)
	file.write(t, manifestConfig(t, "sidecar/offsetproxy.yaml",
		"kafka.kafka.svc:9092", "["+strings.Join(brokers.addresses(), ", ")+"]",
		"127.0.0.1:9092", p.bootstrap, "9093-9192", p.brokerPorts(), "0.0.0.0:9400", "127.0.0.1:0",
		"topics: orders", "topics: manifests-*"))
	p.start(t, program, "--config", file.file)
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, topic, 1)
	p.mustRefuse(t, topic)
	p.mustBeHealthy(t)
	p.mustHaveMetrics(t, "../docs/sidecar.md")

	if brokers.kafka == nil {
		return // what a foreign client does is shown on real Kafka
	}
	installed(t, "clients/kcat/install")
	createTopic(t, admin, ofExample, 1)
	script := exampleScript(t)
	for replica := range 2 {
		app, output := exec.Command("/bin/sh", "-c", script), &processOutput{}
		app.Env = append(os.Environ(), "KAFKA="+p.bootstrap, "TOPIC="+ofExample, "HOSTNAME="+strconv.Itoa(replica))
		app.Stdout, app.Stderr = output, output
		app.SysProcAttr = kafkacluster.DieWithParent()
		if err := app.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- app.Wait() }()
		waitFor(t, "the example application appends", 30*time.Second, func() error {
			if !output.contains("appended at ") {
				return fmt.Errorf("it says %q", output.tail(5))
			}
			return nil
		})
		_ = app.Process.Signal(syscall.SIGTERM)
		if err := <-done; err != nil {
			t.Errorf("the example application ended with %v when it was told to end:\n%s", err, output.tail(10))
		}
	}
	if got := readLog(t, ofExample, 0); len(got) < 2 {
		t.Errorf("the log of the example applications holds %v", got)
	}
}

// scriptOfExample is the argument of the example application's shell, indented.
var scriptOfExample = regexp.MustCompile(`(?m)^          args:\n            - \|\n((?:              .*\n|\n)+)`)

// exampleScript takes it out of the manifest.
func exampleScript(t *testing.T) string {
	t.Helper()
	found := scriptOfExample.FindStringSubmatch(readText(t, filepath.Join(manifests, "example/application.yaml")))
	if found == nil {
		t.Fatal("the example application's script is not where it is looked for")
	}
	return found[1]
}

// TestManifestsGatewayByPorts starts the configuration, and changes its rules as a
// ConfigMap is changed.
func TestManifestsGatewayByPorts(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic = "manifests-ports"
	p, file := newProxyProcess(t), newConfigMap(t)
	text := manifestConfig(t, "gateway/ports/offsetproxy.yaml",
		"kafka.kafka.svc:9092", "["+strings.Join(brokers.addresses(), ", ")+"]",
		"offsetproxy.offsetproxy.svc.cluster.local", "localhost", "0.0.0.0:9092", p.bootstrap, "9093-9098", p.brokerPorts(),
		"0.0.0.0:9400", "127.0.0.1:0", "drain_delay: 10s", "drain_delay: 0s", "topics: orders", "topics: "+topic)
	file.write(t, text)
	p.start(t, program, "--config", file.file)
	for node, address := range p.brokerAddresses(t) {
		if host, _, _ := net.SplitHostPort(address); host != "localhost" {
			t.Errorf("clients are told %s for broker %d", address, node)
		}
	}
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	p.mustRefuse(t, topic)
	p.mustBeHealthy(t)

	// A rule that is switched off in the ConfigMap is off in the proxy that runs.
	if !strings.Contains(text, "mode: require") {
		t.Fatal("the configuration requires nothing")
	}
	file.write(t, strings.ReplaceAll(text, "mode: require", "mode: off"))
	waitFor(t, "other rules are in force", 30*time.Second, func() error {
		if !p.output.contains("configuration read again; other rules are in force") {
			return errors.New(p.output.tail(3))
		}
		return nil
	})
	dialLeader(t, p, topic).mustTell(t, topic, encodeBatch(conditional(0, "second")), wonAt(1))
	mustHold(t, topic, "first", "second")
}
