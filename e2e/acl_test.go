package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const probeTopic = "__offsetproxy_probe"

// What the proxy's own principal needs, and no more.
var (
	viewRights   = []kadm.ACLOperation{kadm.OpDescribe, kadm.OpRead, kadm.OpDescribeConfigs}
	probeRights  = []kadm.ACLOperation{kadm.OpDescribe, kadm.OpRead, kadm.OpWrite}
	configRights = []kadm.ACLOperation{kadm.OpDescribeConfigs}
)

// TestRights has brokers that ask who one is, and what one may.
func TestRights(t *testing.T) {
	besideOthers(t)
	s := startSecured(t, nil, "proxy", "narrow", "writer", "reader")
	s.topic(t, probeTopic, securedBrokers)
	s.allow(t, "proxy", on{probeTopic, probeRights}, on{"", configRights})
	s.allow(t, "narrow", on{probeTopic, probeRights})
	t.Run("enough", func(t *testing.T) { rightsThatAreEnough(t, s) })
	t.Run("missing", func(t *testing.T) { missingRightsAreNamed(t, s) })
	t.Run("doctor", func(t *testing.T) { doctorOfRights(t, s) })
}

// rightsThatAreEnough: a client with WRITE alone appends conditionally
// through a proxy that may read, and write only what it probes brokers by. Who
// may not write learns nothing of the topic.
func rightsThatAreEnough(t *testing.T, s *secured) {
	const topic = "rights"
	s.topic(t, topic, 1)
	s.allow(t, "proxy", on{topic, viewRights})
	s.allow(t, "writer", on{topic, []kadm.ACLOperation{kadm.OpWrite}})
	s.allow(t, "reader", on{topic, []kadm.ACLOperation{kadm.OpRead}})
	p := s.proxyAs(t, "proxy", "PLAIN", "--require", topic)

	writer := s.leaderAs(t, p, "writer", topic)
	writer.mustTell(t, topic, encodeBatch(conditional(0, "a")), wonAt(0))
	writer.mustTell(t, topic, encodeBatch(conditional(0, "x")), takenAt(0, 1))
	writer.mustTell(t, topic, encodeBatch(conditional(5, "x")), notReachedAt(5, 1))
	client := s.clientAs(t, "writer", p.bootstrap)
	if err := appendBy(t.Context(), client, topic, "1", "b"); err != nil {
		t.Errorf("franz-go: %v", err)
	}
	if err := appendBy(t.Context(), client, topic, "1", "x"); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("franz-go, taken: got %v, want OFFSET_OUT_OF_RANGE", err)
	}
	for _, user := range []string{"reader", "proxy"} {
		conn := s.leaderAs(t, p, user, topic)
		for _, expected := range []int64{0, 2, 9} {
			conn.mustTell(t, topic, encodeBatch(conditional(expected, "x")),
				told{kerr.TopicAuthorizationFailed.Code, -1, "the client may not write to the topic: grant its principal WRITE"})
		}
	}
	writer.mustTell(t, topic, encodeBatch(conditional(2, "c")), wonAt(2))
	// The proxy needed nothing that it has not, but for the replicas there are
	// too few of.
	lines, _ := p.output.lines(0)
	for _, line := range lines {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, "can lose acknowledged records") && !strings.Contains(line, "the system gives less") || strings.Contains(line, "level=ERROR") {
			t.Errorf("got log line %s", line)
		}
	}
	probed := 0
	for _, line := range lines {
		if strings.Contains(line, "broker probed") && strings.Contains(line, "marks_duplicates_by=log_append_time") {
			probed++
		}
	}
	if probed != securedBrokers {
		t.Errorf("got %d brokers probed, want %d", probed, securedBrokers)
	}
}

// missingRightsAreNamed to who has to grant them: by the log, and as far as
// clients are refused for that, in what they are told.
func missingRightsAreNamed(t *testing.T, s *secured) {
	write := []kadm.ACLOperation{kadm.OpWrite}
	ready := func(topic string, rights []kadm.ACLOperation, users ...string) {
		t.Helper()
		s.topic(t, topic, 1)
		s.allow(t, "writer", on{topic, write})
		for _, user := range users {
			s.allow(t, user, on{topic, rights})
		}
	}
	refused := func(t *testing.T, p *proxyProcess, topic string, code int16, want string) {
		t.Helper()
		answer, err := s.leaderAs(t, p, "writer", topic).produce(topic, 0, encodeBatch(conditional(0, "x")))
		if err != nil {
			t.Fatal(err)
		}
		if got := toldOf(answer); got.code != code || got.offset != -1 || !strings.Contains(got.message, want) {
			t.Errorf("%s: got %+v, want code %d and %q", topic, got, code, want)
		}
		awaitLogged(t, p, want)
	}

	t.Run("on a topic", func(t *testing.T) {
		p := s.proxyAs(t, "proxy", "PLAIN", "--require", "lacks-*")
		ready("lacks-all", nil)
		refused(t, p, "lacks-all", kerr.PolicyViolation.Code, "grant the proxy DESCRIBE and READ on it")
		ready("lacks-configs", []kadm.ACLOperation{kadm.OpDescribe, kadm.OpRead}, "proxy")
		refused(t, p, "lacks-configs", kerr.PolicyViolation.Code, "grant the proxy DESCRIBE_CONFIGS on it")
		ready("lacks-read", []kadm.ACLOperation{kadm.OpDescribe, kadm.OpDescribeConfigs}, "proxy")
		answer, err := s.leaderAs(t, p, "writer", "lacks-read").produce("lacks-read", 0, encodeBatch(conditional(0, "x")))
		if err != nil {
			t.Fatal(err)
		}
		if got := toldOf(answer); got.code != kerr.PolicyViolation.Code || !strings.Contains(got.message, "DESCRIBE and READ") {
			t.Errorf("lacks-read: got %+v, want POLICY_VIOLATION that names READ", got)
		}
		awaitLogged(t, p, "grant its principal DESCRIBE and READ on the topic")
	})

	t.Run("on the cluster", func(t *testing.T) {
		const topic = "lacks-cluster"
		ready(topic, viewRights, "narrow")
		p := s.proxyAs(t, "narrow", "PLAIN", "--require", topic)
		refused(t, p, topic, kerr.PolicyViolation.Code, "grant the proxy DESCRIBE_CONFIGS on the cluster, or assert them in its configuration")
		asserted := s.proxyAs(t, "narrow", "PLAIN", "--require", topic,
			"--assert-producer-id-expiration", "24h", "--assert-connections-max-idle", "10m")
		s.leaderAs(t, asserted, "writer", topic).mustTell(t, topic, encodeBatch(conditional(0, "a")), wonAt(0))
	})

	for _, tc := range []struct {
		name, probe string
		exists      bool
		rights      []kadm.ACLOperation
		want        string // in the log
		probed      bool
	}{
		{"no probe topic", "probe-none", false, nil, "DESCRIBE, READ and WRITE", false},
		{"no right to create it", "probe-uncreated", false, probeRights, "grant its principal CREATE on the topic", false},
		{"no right to write to it", "probe-unwritten", true, []kadm.ACLOperation{kadm.OpDescribe, kadm.OpRead}, "grant its principal WRITE on it", false},
		{"no right to read it", "probe-unread", true, []kadm.ACLOperation{kadm.OpDescribe, kadm.OpWrite}, "grant its principal READ on it", false},
		{"the right to create it", "probe-created", false, append([]kadm.ACLOperation{kadm.OpCreate}, probeRights...), "probe topic created", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			topic := "for-" + tc.probe
			ready(topic, viewRights, "proxy")
			if tc.exists {
				s.topic(t, tc.probe, securedBrokers)
			}
			if tc.rights != nil {
				s.allow(t, "proxy", on{tc.probe, tc.rights})
			}
			p := s.proxyAs(t, "proxy", "PLAIN", "--require", topic, "--probe-topic", tc.probe)
			conn := s.leaderAs(t, p, "writer", topic)
			awaitLogged(t, p, tc.want)
			next := int64(0)
			if tc.probed {
				conn.mustTell(t, topic, encodeBatch(conditional(next, "a")), wonAt(next))
				next++
			} else if got := tell(t, conn, 9, producePart{topic: topic, batch: encodeBatch(conditional(next, "x"))}); got.code != kerr.InvalidRecord.Code || !strings.Contains(got.message, "append-id") {
				t.Errorf("without an append-id: got %+v, want INVALID_RECORD that asks for it", got)
			}
			batch := encodeBatch(identified(conditional(next, "b"), "1"))
			conn.mustTell(t, topic, batch, wonAt(next))
			conn.mustTell(t, topic, batch, wonAt(next)) // its own, again
			conn.mustTell(t, topic, encodeBatch(identified(conditional(next, "b"), "2")), takenAt(next, next+1))
		})
	}
}

// TestProxyLogsIn again before its logins end: by SCRAM on brokers that never see its
// password, and by tokens.
func TestProxyLogsIn(t *testing.T) {
	besideOthers(t)
	const lasts = 4 * time.Second
	s := startSecured(t, tokensTaken(map[string]string{"connections.max.reauth.ms": strconv.FormatInt(lasts.Milliseconds(), 10)}), "proxy", "writer")
	s.allow(t, "proxy", on{probeTopic, append([]kadm.ACLOperation{kadm.OpCreate}, probeRights...)}, on{"", configRights})
	mechanisms := []string{"SCRAM-SHA-256", "SCRAM-SHA-512"}
	for i, hash := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		mechanism := mechanisms[i]
		set, err := s.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "proxy", Mechanism: hash, Iterations: 4096, Password: passwordOf("proxy")}})
		if err != nil || set.Error() != nil {
			t.Fatalf("%s: %v, %v", mechanism, err, set.Error())
		}
		topic := "scram-" + mechanism
		s.topic(t, topic, 1)
		s.allow(t, "writer", on{topic, []kadm.ACLOperation{kadm.OpWrite}})
		s.allow(t, "proxy", on{topic, viewRights})
	}
	t.Run("OAUTHBEARER", func(t *testing.T) {
		t.Parallel()
		logsInByToken(t, s, lasts)
	})
	for _, mechanism := range mechanisms {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel() // they wait for the end of logins
			topic := "scram-" + mechanism
			p := s.proxyAs(t, "proxy", mechanism, "--require", topic, "--log-level", "debug")
			// Brokers end clients' logins too, so each append has its own; the proxy's
			// views need a connection that is logged in all the time.
			for next, end := int64(0), time.Now().Add(2*lasts); time.Now().Before(end); next++ {
				conn := s.leaderAs(t, p, "writer", topic)
				conn.mustTell(t, topic, encodeBatch(conditional(next, mechanism)), wonAt(next))
				conn.close()
			}
			if p.output.contains("broker unreachable") {
				t.Error("a connection was used beyond its login")
			}
		})
	}
}

// awaitLogged waits until the proxy's log holds a text.
func awaitLogged(t *testing.T, p *proxyProcess, text string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the log says %q", text), 30*time.Second, func() error {
		if !p.output.contains(text) {
			return errNotLogged
		}
		return nil
	})
}

var errNotLogged = errors.New("not yet")
