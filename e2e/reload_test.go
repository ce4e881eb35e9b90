package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// reloadTimes is how often the rules change under load.
const reloadTimes = 50

// reloadWriter writes to partition 0 of a topic, one record after the other, on one
// connection, and keeps what it was told.
type reloadWriter struct {
	topic       string
	conditional bool
	// appended is where each value is said to lie, refused what was refused.
	appended map[string]int64
	refused  []string
	// elsewhere counts appends at another offset than expected, without a word:
	// there was no rule.
	elsewhere int
}

// run writes until ctx ends. What is said must be a success or one of the refusals
// of a rule.
func (w *reloadWriter) run(ctx context.Context, conn *rawConn, name string, written *atomic.Int64) error {
	w.appended = map[string]int64{}
	for i, next := 0, int64(0); ctx.Err() == nil; i++ {
		value := fmt.Sprintf("%s %d", name, i)
		record := rawRecord{value: value}
		if w.conditional {
			record = conditional(next, value)
		}
		answer, err := conn.produce(w.topic, 0, encodeBatch(record))
		if err != nil {
			return fmt.Errorf("%s: %w", value, err)
		}
		said := toldOf(answer)
		var expected, following int64
		switch {
		case said.code == 0:
			w.appended[value] = said.offset
			if w.conditional && said.offset != next {
				w.elsewhere++
			}
			next = said.offset + 1
		case said.code == kerr.NotLeaderForPartition.Code:
			w.refused = append(w.refused, value)
		case w.conditional && said.code == kerr.OffsetOutOfRange.Code:
			w.refused = append(w.refused, value)
			text := said.message
			for _, kind := range []string{"taken", "not reached"} {
				if n, _ := fmt.Sscanf(text, "expected-offset "+kind+": expected=%d next=%d", &expected, &following); n == 2 {
					next = following
				}
			}
		case !w.conditional && said.code == kerr.InvalidRecord.Code:
			w.refused = append(w.refused, value)
		default:
			return fmt.Errorf("%s: told %+v", value, said)
		}
		written.Add(1)
	}
	return nil
}

// TestReloadUnderLoad changes the rules of one topic many times by SIGHUP while
// writers with and without conditions are at it, and those of another that always
// requires a condition. No request fails but by a rule, what is acknowledged lies
// where it is said to, what is refused lies nowhere, and nothing wrong is logged. A
// file that is wrong changes nothing.
func TestReloadUnderLoad(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const always, toggled = "reload-always", "reload-toggled"
	p := newProxyProcess(t)
	file := filepath.Join(t.TempDir(), "serve.yaml")
	write := func(mode string) {
		t.Helper()
		text := fmt.Sprintf("bootstrap: [%s]\nlisten: %s\nbroker_ports: %s\nbrokers: {kind: %s}\nrules:\n- {topics: %s, mode: require}\n- {topics: %s, mode: %s}\n",
			strings.Join(brokers.addresses(), ", "), p.bootstrap, p.brokerPorts(), brokers.kind(), always, toggled, mode)
		if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
	}
	write("off")
	p.start(t, program, "--config", file)
	read := 0
	reload := func(mode, says string) {
		t.Helper()
		write(mode)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the log says "+says, 20*time.Second, func() error {
			lines, at := p.output.lines(read)
			for _, line := range lines {
				if strings.Contains(line, says) {
					read = at
					return nil
				}
			}
			return fmt.Errorf("%d lines do not", len(lines))
		})
	}
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, always, 1)
	createTopic(t, admin, toggled, 1)

	writers := []*reloadWriter{
		{topic: always, conditional: true}, {topic: always, conditional: true},
		{topic: toggled, conditional: true}, {topic: toggled, conditional: true},
		{topic: toggled}, {topic: toggled},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	var written [2]atomic.Int64 // always, toggled
	for i, w := range writers {
		conn := dialLeader(t, p, w.topic)
		count := &written[0]
		if w.topic == toggled {
			count = &written[1]
		}
		group.Go(func() {
			if err := w.run(ctx, conn, fmt.Sprintf("writer %d", i), count); err != nil {
				t.Error(err)
				stop()
			}
		})
	}
	underLoad := func() {
		t.Helper()
		before := [2]int64{written[0].Load(), written[1].Load()}
		waitFor(t, "both topics are written to", 20*time.Second, func() error {
			if ctx.Err() == nil && (written[0].Load() < before[0]+8 || written[1].Load() < before[1]+16) {
				return fmt.Errorf("%d and %d requests", written[0].Load()-before[0], written[1].Load()-before[1])
			}
			return nil
		})
	}
	modes := []string{"require", "off", "enforce", "observe", "require", "enforce"}
	if brokers.kafka == nil {
		// The embedded broker does not tell where the fence stands once others have
		// written behind it.
		modes = []string{"require", "enforce"}
		reload("enforce", "other rules are in force")
	}
	for i := range reloadTimes {
		underLoad()
		reload(modes[i%len(modes)], "other rules are in force")
	}
	underLoad()
	reload("requires", "configuration refused")
	underLoad()
	last := modes[(reloadTimes-1)%len(modes)]
	reload(last, "its rules are those in force")
	stop()
	group.Wait()

	logs := map[string]map[string]int64{always: {}, toggled: {}}
	for topic, stored := range logs {
		for _, r := range readLog(t, topic, 0) {
			stored[r.value] = r.offset
		}
	}
	appended, refused, elsewhere := 0, 0, 0
	for i, w := range writers {
		for value, offset := range w.appended {
			if at, ok := logs[w.topic][value]; !ok || at != offset {
				t.Errorf("%s, %q: told offset %d; in the log %v, at %d", w.topic, value, offset, ok, at)
			}
		}
		for _, value := range w.refused {
			if at, ok := logs[w.topic][value]; ok {
				t.Errorf("%s, %q: refused, and in the log at %d", w.topic, value, at)
			}
		}
		if w.topic == always && w.elsewhere > 0 {
			t.Errorf("writer %d: %d appends at other offsets under require", i, w.elsewhere)
		}
		appended, refused, elsewhere = appended+len(w.appended), refused+len(w.refused), elsewhere+w.elsewhere
	}
	t.Logf("%d appended, %d of them elsewhere while there was no rule, %d refused", appended, elsewhere, refused)
	if n := len(logs[always]) + len(logs[toggled]); n != appended {
		t.Errorf("%d records in the logs, %d acknowledged", n, appended)
	}
	lines, _ := p.output.lines(0)
	for _, line := range lines {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "configuration refused") || strings.Contains(line, "waited for no longer") {
			t.Errorf("the log says %s", line)
		}
	}
}
