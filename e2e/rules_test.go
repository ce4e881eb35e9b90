package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// int64Place is a record whose place is 8 bytes in a header "place".
func int64Place(expected int64, value string) rawRecord {
	place := string(binary.BigEndian.AppendUint64(nil, uint64(expected)))
	return rawRecord{value: value, headers: []rawHeader{{"place", place}}}
}

// TestRuleOptions: each rule has its code for refusals, its headers and their
// encoding; the first rule that matches decides.
func TestRuleOptions(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const code44, code87, place, off = "rules-code44", "rules-code87", "rules-place", "rules-off"
	flags := []string{
		"--require", code44 + " error_code=44",
		"--enforce", "topics_regexp=rules-code(87|88) error_code=87",
		"--require", place + " expected_offset_header=place expected_offset_encoding=int64 append_id_header=once",
		"--off", "rules-o*", "--require", "*",
	}
	p := startProxy(t, flags...)
	admin := adminAt(t, p.bootstrap)
	for _, topic := range []string{code44, code87, place, off} {
		createTopic(t, admin, topic, 1)
	}
	for topic, code := range map[string]int16{code44: 44, code87: 87} {
		conn := dialLeader(t, p, topic)
		conn.mustTell(t, topic, encodeBatch(conditional(0, "a")), wonAt(0))
		taken, notReached := takenAt(0, 1), notReachedAt(3, 1)
		taken.code, notReached.code = code, code
		conn.mustTell(t, topic, encodeBatch(conditional(0, "b")), taken)
		conn.mustTell(t, topic, encodeBatch(conditional(3, "c")), notReached)
		mustHold(t, topic, "a")
	}

	conn := dialLeader(t, p, place)
	mine := int64Place(0, "a")
	mine.headers = append(mine.headers, rawHeader{"once", "mine"}, rawHeader{"expected-offset", "nobody's here"})
	conn.mustTell(t, place, encodeBatch(mine), wonAt(0))
	conn.mustTell(t, place, encodeBatch(int64Place(0, "b")), takenAt(0, 1))
	for message, record := range map[string]rawRecord{
		"record 0: place is negative":                                                               int64Place(-1, "c"),
		`record 0: place is neither 8 bytes, a big-endian number, nor "end"`:                        {value: "c", headers: []rawHeader{{"place", "1"}}},
		`the topic requires an expected-offset header on every record, which is named "place" here`: conditional(1, "c"),
	} {
		conn.mustTell(t, place, encodeBatch(record), told{kerr.InvalidRecord.Code, -1, message})
	}
	conn.mustTell(t, place, encodeBatch(rawRecord{value: "end", headers: []rawHeader{{"place", "end"}}}), wonAt(1))
	// Another proxy finds the append-id in the log by its name.
	other := dialLeader(t, startProxy(t, flags...), place)
	other.mustTell(t, place, encodeBatch(mine), wonAt(0))
	mustHold(t, place, "a", "end")

	conn = dialLeader(t, p, off)
	conn.mustTell(t, off, encodeBatch(conditional(7, "not looked at")), wonAt(0))
}

// TestObserve forwards as if there were no rule, and counts what the fence would
// have said. The same batches under require are refused.
func TestObserve(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic = "observed"
	port, err := kafkacluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	metrics := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := startProxy(t, "--observe", topic, "--metrics-listen", metrics)
	createTopic(t, adminAt(t, p.bootstrap), topic, 1)
	conn := dialLeader(t, p, topic)
	// The topic is looked up meanwhile, which nobody waits for.
	next := int64(0)
	waitFor(t, "topic is known to the proxy", 30*time.Second, func() error {
		conn.mustTell(t, topic, encodeBatch(conditional(next, "first")), wonAt(next))
		next++
		if got := observed(t, metrics, "won"); got == 0 {
			return fmt.Errorf("%d batches are not judged", next)
		}
		return nil
	})
	conn.mustTell(t, topic, encodeBatch(conditional(0, "taken")), wonAt(next))
	conn.mustTell(t, topic, encodeBatch(conditional(next+9, "not reached")), wonAt(next+1))
	conn.mustTell(t, topic, encodeBatch(rawRecord{value: "unconditional"}), wonAt(next+2))
	conn.mustTell(t, topic, encodeBatch(rawRecord{value: "malformed", headers: []rawHeader{{"expected-offset", "-1"}}}), wonAt(next+3))
	for outcome, want := range map[string]int{"won": 1, "taken": 1, "not_reached": 1, "unconditional": 1, "refused": 1, "broker_error": 0} {
		if got := observed(t, metrics, outcome); got != want {
			t.Errorf("%s: got %d, want %d", outcome, got, want)
		}
	}
	if values := readLog(t, topic, 0); int64(len(values)) != next+4 {
		t.Errorf("the log has %d records, want %d", len(values), next+4)
	}

	fenced := dialLeader(t, startProxy(t, "--require", topic), topic)
	fenced.mustTell(t, topic, encodeBatch(conditional(0, "taken too")), takenAt(0, next+4))
	fenced.mustTell(t, topic, encodeBatch(conditional(next+9, "not reached")), notReachedAt(next+9, next+4))
}

// observed reads the counter of observed batches of one outcome.
func observed(t *testing.T, metrics, outcome string) int {
	t.Helper()
	answer, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^offsetproxy_observed_total\{.*outcome="` + outcome + `".*\} (\d+)$`).FindSubmatch(body)
	if line == nil {
		t.Fatalf("no counter of %s in\n%s", outcome, body)
	}
	n, err := strconv.Atoi(string(line[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
