package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// matrixTimeout bounds one client's way through everything.
const matrixTimeout = 4 * time.Minute

// aloneTries is how often a client is tried without the proxy to see whether what failed
// fails there too. The share consumer of librdkafka 2.16, a preview, reads nothing of
// the preview in Kafka 4.1 about every second time.
const aloneTries = 3

// matrixPartitions is how many partitions the clients' programs expect.
const matrixPartitions = 3

// matrixClient is a client that does everything it can through a proxy, with what runs
// it. Its program takes BOOTSTRAP TOPIC FENCED.
type matrixClient struct {
	name string // as in the table
	// versions are the command lines of the newest and, if there is one, an older
	// version.
	versions []func(*testing.T) []string
	// built is for what its installer compiles for minutes: only long runs have it.
	built bool
}

// olderJava is the version of the Java client beside the newest.
const olderJava = "3.9.1"

var matrixClients = []matrixClient{
	{name: "Java kafka-clients", versions: []func(*testing.T) []string{javaFile(newestJava, "Matrix.java"), javaFile(olderJava, "Matrix.java")}},
	{name: "librdkafka (confluent-kafka)", versions: pythonMatrix("matrix_librdkafka.py")},
	{name: "franz-go", versions: goMatrix("franz")},
	{name: "sarama", versions: goMatrix("sarama")},
	{name: "segmentio/kafka-go", versions: goMatrix("segmentio")},
	{name: "kafka-python", versions: pythonMatrix("matrix_kafka_python.py")},
	{name: "aiokafka", versions: pythonMatrix("matrix_aio.py")},
	{name: "kafkajs", versions: nodeMatrix("kafkajs", "matrix_kafkajs.js")},
	{name: "@confluentinc/kafka-javascript", versions: nodeMatrix("confluent", "matrix_confluent.js"), built: true},
	{name: "kcat", versions: []func(*testing.T) []string{kcatMatrix}},
}

func javaFile(version, file string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		jars, err := kafkacluster.FetchJars(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		argv := javaClient(jars)
		argv[len(argv)-1] = "clients/java/" + file
		return argv
	}
}

func pythonMatrix(file string) []func(*testing.T) []string {
	of := func(requirements string) func(*testing.T) []string {
		return func(t *testing.T) []string {
			t.Helper()
			return []string{installed(t, "clients/python/install", cacheDir(t, "python"), requirements), "-B", "clients/python/" + file}
		}
	}
	return []func(*testing.T) []string{of("requirements.txt"), of("requirements-older.txt")}
}

func nodeMatrix(manifest, file string) []func(*testing.T) []string {
	of := func(manifest string) func(*testing.T) []string {
		return func(t *testing.T) []string {
			t.Helper()
			path := installed(t, "clients/node/install", cacheDir(t, "node"), manifest)
			return []string{"env", "NODE_PATH=" + path, "node", "clients/node/" + file}
		}
	}
	return []func(*testing.T) []string{of(manifest + ".json"), of(manifest + "-older.json")}
}

func goMatrix(library string) []func(*testing.T) []string {
	older := func(t *testing.T) []string {
		t.Helper()
		binary, err := olderGoClients()
		if err != nil {
			t.Fatal(err)
		}
		return []string{binary, library}
	}
	return []func(*testing.T) []string{goProgram(library), older}
}

// olderGoClients builds the program with older versions of the clients once.
var olderGoClients = sync.OnceValues(func() (string, error) {
	return buildGoClients("clients-older", "-tags", "older", "-modfile", "older.mod")
})

func kcatMatrix(t *testing.T) []string {
	t.Helper()
	return []string{"clients/kcat/matrix", installed(t, "clients/kcat/install")}
}

func cacheDir(t *testing.T, language string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../.cache", language))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// matrixResult is what one client did.
type matrixResult struct {
	client, version string
	older           bool
	done            []string
	lacks           []matrixLack // what it does not have
	failed          []matrixLack
	brokers         []string // addresses that it was told
}

// matrixLack is a thing to do that was not done, with why.
type matrixLack struct{ name, why string }

// readMatrix reads what a client's program printed.
func readMatrix(client string, output string) *matrixResult {
	r := &matrixResult{client: client}
	for line := range strings.Lines(output) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, why, _ := strings.Cut(rest, ": ")
		switch word {
		case "version":
			r.version = rest
		case "broker":
			r.brokers = append(r.brokers, rest)
		case "ok":
			r.done = append(r.done, rest)
		case "cannot":
			r.lacks = append(r.lacks, matrixLack{name, why})
		case "failed":
			r.failed = append(r.failed, matrixLack{name, why})
		}
	}
	return r
}

// groupKinds are the kinds of groups that brokers of a version have.
func groupKinds(version string) []string {
	switch {
	case strings.HasPrefix(version, "3."):
		return []string{"classic"}
	case strings.HasPrefix(version, "4.0."):
		return []string{"classic", "consumer"}
	}
	return []string{"classic", "consumer", "share"}
}

// TestClientMatrix has every client do everything it can through a proxy, and holds
// docs/clients.md to what it did. The brokers advertise addresses at which only the
// proxy is let through. What fails is tried without a proxy too: if it fails there as
// well, it is the client's.
func TestClientMatrix(t *testing.T) {
	cluster := requireKafka(t)
	besideOthers(t)
	if strings.HasPrefix(cluster.Version(), "4.1.") { // where share groups are a preview
		if _, err := cluster.Tool(t.Context(), "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", cluster.Bootstrap(),
			"upgrade", "--feature", "share.version=1"); err != nil {
			t.Fatal(err)
		}
	}
	m := &matrix{kinds: groupKinds(cluster.Version())}
	m.plain, m.ruled = m.proxies(t, cluster)
	t.Run("clients", func(t *testing.T) {
		for _, client := range matrixClients {
			for i, argv := range client.versions {
				if (i > 0 || client.built) && !longRuns {
					break
				}
				t.Run(client.name+[]string{"", " older"}[i], func(t *testing.T) {
					t.Parallel()
					m.run(t, client.name, i > 0, argv(t))
				})
			}
		}
		t.Run("tools", func(t *testing.T) {
			t.Parallel()
			m.run(t, toolsClient, false, javaFile(cluster.Version(), "Tools.java")(t))
		})
	})
	if !t.Failed() {
		m.checkDocument(t, cluster.Version())
	}
}

// matrix is a run of all clients.
type matrix struct {
	kinds []string // of groups
	// plain has no rule, and ruled has one for the topics named -fenced.
	plain, ruled *proxyProcess

	mu      sync.Mutex
	results []*matrixResult
	topics  int
}

// proxies stand before brokers that let nobody else through.
func (m *matrix) proxies(t *testing.T, cluster *kafkacluster.Cluster) (plain, ruled *proxyProcess) {
	t.Helper()
	if direct {
		p := startProxy(t)
		return p, p
	}
	guard := guardBrokers(t, cluster.RelayedPorts())
	started := func(flags ...string) *proxyProcess {
		p := newProxyProcess(t)
		p.launched = guard.admit
		p.start(t, program, append([]string{
			"--bootstrap", guard.bootstrap, "--listen", p.bootstrap, "--broker-ports", p.brokerPorts(), "--metrics-listen", "127.0.0.1:0",
		}, flags...)...)
		return p
	}
	return started(), started("--require", "*-fenced")
}

// run has a client do everything through a proxy that has a rule and, in long runs,
// through one that has none.
func (m *matrix) run(t *testing.T, client string, older bool, argv []string) {
	t.Helper()
	r := m.through(t, m.ruled, client, argv)
	if longRuns {
		again := m.through(t, m.plain, client, argv)
		if !slices.Equal(again.done, withoutConditions(r.done)) {
			t.Errorf("without any rule: got %q, want %q as with one", again.done, withoutConditions(r.done))
		}
	}
	r.older = older
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results = append(m.results, r)
}

// conditionsDone is what needs a rule.
const conditionsDone = "conditions"

func withoutConditions(done []string) []string {
	return slices.DeleteFunc(slices.Clone(done), func(name string) bool { return name == conditionsDone })
}

// through has a client do everything through a proxy. What failed is a failure of the
// test if it does not fail at the brokers themselves.
func (m *matrix) through(t *testing.T, p *proxyProcess, client string, argv []string) *matrixResult {
	t.Helper()
	r, said := m.do(t, client, argv, p.bootstrap)
	if r.version == "" || len(r.done) == 0 {
		t.Fatalf("%s did nothing:\n%s", client, said)
	}
	for _, address := range r.brokers {
		checkAddress(t, p, address)
	}
	failed := slices.DeleteFunc(r.failed, func(l matrixLack) bool { return l.name == conditionsDone && p != m.ruled })
	if len(failed) == 0 || direct {
		r.lacks = append(r.lacks, failed...)
		return r
	}
	var alone []matrixLack
	for range aloneTries {
		again, _ := m.do(t, client, argv, strings.Join(brokers.addresses(), ","))
		if alone = append(alone, again.failed...); len(again.failed) > 0 {
			break
		}
	}
	for _, lack := range failed {
		if lack.name != conditionsDone && slices.ContainsFunc(alone, func(l matrixLack) bool { return l.name == lack.name }) {
			t.Logf("%s fails without the proxy too: %s", lack.name, lack.why)
			r.lacks = append(r.lacks, matrixLack{lack.name, "fails without the proxy too"})
			continue
		}
		t.Errorf("%s: %s", lack.name, lack.why)
	}
	if t.Failed() {
		t.Logf("it said:\n%s", said)
	}
	return r
}

// do runs a client's program on topics of its own.
func (m *matrix) do(t *testing.T, client string, argv []string, bootstrap string) (result *matrixResult, said string) {
	t.Helper()
	m.mu.Lock()
	m.topics++
	topic := fmt.Sprintf("matrix-%d", m.topics)
	m.mu.Unlock()
	admin := adminAt(t, brokers.addresses()...)
	args := []string{bootstrap, topic}
	createTopic(t, admin, topic, matrixPartitions)
	if client != toolsClient {
		createTopic(t, admin, topic+"-fenced", matrixPartitions)
		args = append(args, topic+"-fenced")
	}
	ctx, cancel := context.WithTimeout(t.Context(), matrixTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], slices.Concat(argv[1:], args)...)
	cmd.Env = append(os.Environ(), "MATRIX_GROUPS="+strings.Join(m.kinds, " "))
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := time.Now()
	err := cmd.Run()
	t.Logf("%s at %s: %v", client, bootstrap, time.Since(started).Round(time.Second/10))
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", strings.Join(argv, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return readMatrix(client, stdout.String()), stdout.String() + stderr.String()
}
