package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
)

// TestClientThatMayNotWriteLearnsNothing: where the log ends, and whether a
// record is in it, is for those who may write.
func TestClientThatMayNotWriteLearnsNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rights func(topic string) int16
		may    bool
	}{
		{"may write", nil, true},
		{"may not", func(string) int16 { return kerr.TopicAuthorizationFailed.Code }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLeader(t, "fenced", "fenced-too")
			r := newFencedRig(t, Config{}, l)
			owner := r.dial()
			wantResult(t, owner.one(0, conditional(0, "a")), 0, 0, "")
			l.change(func() { l.rights = tc.rights })
			c := r.dial()
			want := result{Topic: "fenced", Code: kerr.TopicAuthorizationFailed.Code, Base: -1, Message: messageMayNotWrite}
			if tc.may {
				want = result{Topic: "fenced", Code: kerr.OffsetOutOfRange.Code, Base: -1, Message: "expected-offset taken: expected=0 next=1"}
			}
			for range 2 { // what was refused is asked again
				if got := c.one(0, conditional(0, "x")); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			if refused := r.metrics.refusals[refusalMayNotWrite].Load(); (refused > 0) == tc.may {
				t.Errorf("got %d refusals counted as such", refused)
			}
			// A right is found out once for all topics of a request, and kept.
			l.change(func() { l.rights = nil })
			l.change(func() { l.rightsAsked = 0 })
			ask := func() []result {
				return resultsOf(c.produce(9, -1, part{topic: "fenced", records: conditional(0, "x")}, part{topic: "fenced-too", records: conditional(0, "x")}))
			}
			results := append(ask(), ask()...)
			for _, got := range results {
				if got.Code == kerr.TopicAuthorizationFailed.Code || strings.Contains(got.Message, "cannot be found out") {
					t.Errorf("once it may: got %+v", got)
				}
			}
			l.change(func() {
				if l.rightsAsked != 1 {
					t.Errorf("rights were asked for %d times, want once", l.rightsAsked)
				}
			})
		})
	}
}

// TestRightsThatCannotBeFoundOut leave the batch to be sent again.
func TestRightsThatCannotBeFoundOut(t *testing.T) {
	l := newLeader(t, "fenced")
	l.change(func() {
		l.rights = func(string) int16 { return kerr.UnknownServerError.Code }
	})
	c := newFencedRig(t, Config{}, l).dial()
	wantResult(t, c.one(0, conditional(0, "a")), kerr.NotLeaderForPartition.Code, -1, messageRightsUnknown)
	l.change(func() { l.rights = nil })
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
}

// TestRightsByACLs asks a broker that has some.
func TestRightsByACLs(t *testing.T) {
	const topic = "fenced"
	may := func(operations ...kmsg.ACLOperation) (acls []kfake.ACL) {
		for _, o := range operations {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: o, Allow: true})
		}
		return acls
	}
	writer := may(kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)
	reader := may(kmsg.ACLOperationRead, kmsg.ACLOperationDescribe)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "proxy", "p"), kfake.User("PLAIN", "writer", "w", writer...), kfake.User("PLAIN", "reader", "r", reader...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := startFenced(t, Config{
		Bootstrap: cluster.ListenAddrs(), BrokerKind: EmbeddedKfake,
		Credentials: Credentials{Mechanism: Plain, User: "proxy", Password: func() (string, error) { return "p", nil }},
	})
	for i, tc := range []struct {
		user, password string
		want           error
	}{{"writer", "w", nil}, {"writer", "w", kerr.OffsetOutOfRange}, {"reader", "r", kerr.TopicAuthorizationFailed}} {
		client, err := kgo.NewClient(kgo.SeedBrokers(r.Addr()), kgo.SASL(saslplain.Auth{User: tc.user, Pass: tc.password}.AsMechanism()), kgo.DisableIdempotentWrite())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), seamPatience)
		err = client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte{byte(i)}, Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte("0")}}}).FirstErr()
		cancel()
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.user, err, tc.want)
		}
		client.Close()
	}
}
