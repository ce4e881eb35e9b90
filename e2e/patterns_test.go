package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A pattern is an example of docs/patterns.md, a program PROGRAM BOOTSTRAP TOPIC ….
type pattern struct {
	directory string
	needKafka bool // it is in a foreign language
	command   func(*testing.T) []string
	// partitions of its topic.
	partitions int32
	// contend runs it, two at once through two proxies if there is contention.
	contend func(t *testing.T, argv []string, proxies []string, topic string)
	// careless runs it on a topic without a rule, so that it breaks what it promises.
	careless func(t *testing.T, argv []string, proxy, topic string)
	// holds checks what the pattern promises of the log, partition by partition; an error
	// is errBroken if something is in the log that may not be.
	holds func(log [][]logRecord) error
}

var errBroken = errors.New("the promise is broken")

// patternTwinTries is how often a run without a rule may be lucky.
const patternTwinTries = 4

var patterns = []pattern{
	{"commitlog", false, commitLogExample, 1, twoContenders, aloneWithTwoNames, seatsAreGivenOnce},
	{"lease", true, leaseExample, 1, twoContenders, aloneWithTwoNames, onlyLeadersWork},
	{"aggregate", true, aggregateExample, 3, twoContenders, aloneWithTwoNames, accountsAreConsistent},
	{"load", true, loadExample, 1, interruptedLoad, loadTwice, linesAreLoadedOnce},
}

// TestExamplePatterns runs each pattern with contenders on two proxies, and looks in
// the log whether it kept its promise. Without a rule the same look must see it broken.
func TestExamplePatterns(t *testing.T) {
	besideOthers(t)
	needsFence(t)
	const ruled = "pattern-"
	proxies := []string{startProxy(t, "--require", ruled+"*").bootstrap, startProxy(t, "--require", ruled+"*").bootstrap}
	for _, p := range patterns {
		t.Run(p.directory, func(t *testing.T) {
			if p.needKafka {
				requireKafka(t)
			}
			argv := p.command(t)
			admin := adminAt(t, brokers.addresses()...)
			create := func(t *testing.T, topic string) string {
				t.Helper()
				createTopic(t, admin, topic, p.partitions)
				return topic
			}
			t.Run("with a rule", func(t *testing.T) {
				topic := create(t, ruled+p.directory)
				p.contend(t, argv, proxies, topic)
				if err := p.holds(readPartitions(t, topic, p.partitions)); err != nil {
					t.Error(err)
				}
			})
			t.Run("without", func(t *testing.T) {
				var err error
				var last [][]logRecord
				for try := 0; try < patternTwinTries && !errors.Is(err, errBroken); try++ {
					topic := create(t, fmt.Sprintf("free-%s-%d", p.directory, try))
					p.careless(t, argv, proxies[0], topic)
					last = readPartitions(t, topic, p.partitions)
					err = p.holds(last)
				}
				if !errors.Is(err, errBroken) {
					t.Errorf("without a rule nothing went wrong, so this proves nothing about the pattern: %v; the last log: %v", err, last)
				}
			})
		})
	}
}

// TestEveryPatternIsRun holds the table above to the directory and to the document.
func TestEveryPatternIsRun(t *testing.T) {
	entries, err := os.ReadDir("../examples/patterns")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, entry := range entries {
		got = append(got, entry.Name())
		if !strings.Contains(string(document), "(../examples/patterns/"+entry.Name()+"/") {
			t.Errorf("docs/patterns.md has no link to examples/patterns/%s", entry.Name())
		}
	}
	for _, p := range patterns {
		want = append(want, p.directory)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("directories %q, run are %q", got, want)
	}
}

func readPartitions(t *testing.T, topic string, partitions int32) [][]logRecord {
	t.Helper()
	var log [][]logRecord
	for partition := range partitions {
		log = append(log, readLog(t, topic, partition))
	}
	return log
}

// twoContenders runs the program twice at once, each at a proxy of its own.
func twoContenders(t *testing.T, argv []string, proxies []string, topic string) {
	t.Helper()
	var ends []<-chan ended
	for i, name := range []string{"alice", "bob"} {
		ends = append(ends, startCommand(t, slices.Concat(argv, []string{proxies[i], topic, name})).end)
	}
	for _, end := range ends {
		if got := <-end; got.status != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// aloneWithTwoNames has the program contend with itself.
func aloneWithTwoNames(t *testing.T, argv []string, proxy, topic string) {
	t.Helper()
	got := <-startCommand(t, slices.Concat(argv, []string{proxy, topic, "alice", "bob"})).end
	t.Logf("as it was told: %+v", got) // it may see itself what is wrong
}

// linesToLoad are so many that a load can be interrupted.
const linesToLoad = 3_000

func writeLines(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for n := range linesToLoad {
		fmt.Fprintf(&text, "line %d\n", n)
	}
	file := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// interruptedLoad kills a loader when some lines are in the log, has two others finish
// its work at once, and lets another begin from the start.
func interruptedLoad(t *testing.T, argv []string, proxies []string, topic string) {
	t.Helper()
	file := writeLines(t)
	killed := startCommand(t, slices.Concat(argv, []string{proxies[0], topic, file}))
	admin := adminAt(t, brokers.addresses()...)
	waitFor(t, "a line is in the log", time.Minute, func() error {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		if end, ok := ends.Lookup(topic, 0); err != nil || !ok || end.Offset == 0 {
			return errors.Join(err, errors.New("the log is empty"))
		}
		return nil
	})
	_ = killed.process.Kill()
	<-killed.end
	both := []*command{
		startCommand(t, slices.Concat(argv, []string{proxies[0], topic, file})),
		startCommand(t, slices.Concat(argv, []string{proxies[1], topic, file})),
	}
	for _, one := range both {
		if got := <-one.end; got.status != 0 || !strings.Contains(got.stdout, "all 3000 lines are in the log") {
			t.Errorf("%+v", got)
		}
	}
	last := <-startCommand(t, slices.Concat(argv, []string{proxies[0], topic, file, strconv.Itoa(linesToLoad - 250)})).end
	if last.status != 0 || !strings.Contains(last.stdout, "all 3000 lines are in the log") {
		t.Errorf("from an older line: %+v", last)
	}
}

// loadTwice begins again with lines that are in the log.
func loadTwice(t *testing.T, argv []string, proxy, topic string) {
	t.Helper()
	file := writeLines(t)
	for range 2 {
		<-startCommand(t, slices.Concat(argv, []string{proxy, topic, file, "0"})).end
	}
}

// seatsAreGivenOnce: each entry was decided on the state just before it, so that the
// seats are given in their order.
func seatsAreGivenOnce(log [][]logRecord) error {
	for i, record := range log[0] {
		if seat, _, _ := strings.Cut(record.value, " "); seat != strconv.Itoa(i) {
			return fmt.Errorf("%w: offset %d gives seat %s, and %d was the lowest free one", errBroken, record.offset, seat, i)
		}
	}
	if got, want := len(log[0]), 40; got != want {
		return fmt.Errorf("%d seats were given, want %d", got, want)
	}
	return nil
}

// onlyLeadersWork: nothing of a leader is in the log behind the next one's lead.
func onlyLeadersWork(log [][]logRecord) error {
	var leader string
	led := map[string]int{}
	for _, record := range log[0] {
		name, what, _ := strings.Cut(record.value, " ")
		switch {
		case what == "lead":
			leader = name
			led[name]++
		case name != leader:
			return fmt.Errorf("%w: offset %d is work of %s, and %s leads", errBroken, record.offset, name, leader)
		}
	}
	if led["alice"] == 0 || led["bob"] == 0 {
		return fmt.Errorf("leaders were %v, want each to lead", led)
	}
	return nil
}

// accountsAreConsistent: versions count on without a gap, no account is opened twice and
// none is in the red.
func accountsAreConsistent(log [][]logRecord) error {
	type state struct{ version, balance int }
	accounts := map[int]state{}
	for _, partition := range log {
		for _, record := range partition {
			var event struct {
				Account, Version, Amount int
				Type                     string
			}
			if err := json.Unmarshal([]byte(record.value), &event); err != nil {
				return fmt.Errorf("offset %d: %w", record.offset, err)
			}
			s := accounts[event.Account]
			if event.Type == "withdrawn" {
				event.Amount = -event.Amount
			} else if s.version > 0 {
				return fmt.Errorf("%w: offset %d opens account %d again", errBroken, record.offset, event.Account)
			}
			if event.Version != s.version+1 || s.balance+event.Amount < 0 {
				return fmt.Errorf("%w: offset %d: %+v follows %+v", errBroken, record.offset, event, s)
			}
			accounts[event.Account] = state{event.Version, s.balance + event.Amount}
		}
	}
	for number, s := range accounts {
		if want := (state{5, 50}); s != want {
			return fmt.Errorf("account %d ends with %+v, want %+v", number, s, want)
		}
	}
	if got, want := len(accounts), 4; got != want {
		return fmt.Errorf("%d accounts, want %d", got, want)
	}
	return nil
}

// linesAreLoadedOnce: line n is at offset n, and that is all.
func linesAreLoadedOnce(log [][]logRecord) error {
	for n, record := range log[0] {
		if want := "line " + strconv.Itoa(n); record.value != want || record.offset != int64(n) {
			return fmt.Errorf("%w: offset %d holds %q, want %q at %d", errBroken, record.offset, record.value, want, n)
		}
	}
	if got := len(log[0]); got != linesToLoad {
		return fmt.Errorf("%d lines, want %d", got, linesToLoad)
	}
	return nil
}
