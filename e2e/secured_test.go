package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// securedBrokers is the size of a secured cluster, which is started besides the
// one for all tests.
const securedBrokers = 2

// secured is a cluster that asks who one is and what ACLs allow.
type secured struct {
	*kafkacluster.Cluster
	admin *kadm.Client // the super user's, directly at the brokers
}

var superUser = kafkacluster.Login{User: "root", Password: "root-secret"}

// passwordOf gives each user's password.
func passwordOf(user string) string { return user + "-secret" }

// startSecured runs a secured cluster with these users until the test ends.
func startSecured(t *testing.T, properties map[string]string, users ...string) *secured {
	t.Helper()
	requireKafka(t)
	needsProgram(t)
	security := &kafkacluster.Security{Super: superUser}
	for _, user := range users {
		security.Users = append(security.Users, kafkacluster.Login{User: user, Password: passwordOf(user)})
	}
	cluster, err := kafkacluster.Start(t.Context(), kafkacluster.Options{
		Brokers: securedBrokers, Heap: "512m", QuickStart: true, Security: security, Properties: properties,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &secured{Cluster: cluster}
	s.admin = kadm.NewClient(s.clientAs(t, superUser.User, strings.Split(cluster.Bootstrap(), ",")...))
	return s
}

// clientAs is a client of a user for addresses, a proxy's or the brokers' own.
func (s *secured) clientAs(t *testing.T, user string, addresses ...string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.MetadataMinAge(50*time.Millisecond), kgo.DisableIdempotentWrite(),
		kgo.SASL(plain.Auth{User: user, Pass: passwordOf(user)}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// topic creates a topic whose partition i is led by broker i+1, and waits until
// it is.
func (s *secured) topic(t *testing.T, name string, partitions int32) {
	t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 20_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for p := range partitions {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Partition, assignment.Replicas = p, []int32{p%securedBrokers + 1}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	}
	request.Topics = append(request.Topics, topic)
	client := s.clientAs(t, superUser.User, strings.Split(s.Bootstrap(), ",")...)
	response, err := request.RequestWith(t.Context(), client)
	if err != nil || response.Topics[0].ErrorCode != 0 {
		t.Fatalf("create topic %s: %v, %+v", name, err, response)
	}
	waitFor(t, "leaders of "+name+" lead", 30*time.Second, func() error {
		ends, err := s.admin.ListEndOffsets(t.Context(), name)
		if err != nil {
			return err
		}
		return ends.Error()
	})
}

// on lists rights to a topic; "" is the cluster.
type on struct {
	topic  string
	rights []kadm.ACLOperation
}

// allow gives a user rights, on the cluster DESCRIBE_CONFIGS alone, and waits
// until each broker knows of them.
func (s *secured) allow(t *testing.T, user string, rights ...on) {
	t.Helper()
	for _, r := range rights {
		acl := kadm.NewACLs().Allow("User:" + user).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(r.rights...)
		if r.topic == "" {
			acl = acl.Clusters()
		} else {
			acl = acl.Topics(r.topic)
		}
		created, err := s.admin.CreateACLs(t.Context(), acl)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range created {
			if c.Err != nil {
				t.Fatalf("ACL of %s on %q: %v", user, r.topic, c.Err)
			}
		}
		s.awaitRights(t, user, r)
	}
}

// awaitRights asks each broker, by whom the rights are learnt one after the
// other.
func (s *secured) awaitRights(t *testing.T, user string, want on) {
	t.Helper()
	for id := kafkacluster.NodeID(1); id <= securedBrokers; id++ {
		conn, err := dialRaw(s.Address(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := loginAs(conn, user); err != nil {
			t.Fatal(err)
		}
		waitFor(t, fmt.Sprintf("rights of %s on %q at broker %d", user, want.topic, id), 30*time.Second, func() error {
			if want.topic == "" {
				return mayDescribeConfigs(conn, id)
			}
			request, one := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
			one.Topic = &want.topic
			request.Version, request.Topics, request.IncludeTopicAuthorizedOperations = 8, append(request.Topics, one), true
			response, err := conn.roundTrip(request)
			if err != nil {
				return err
			}
			topic := response.(*kmsg.MetadataResponse).Topics[0]
			if topic.ErrorCode == kerr.UnknownTopicOrPartition.Code {
				return nil // it is yet to be created
			}
			for _, r := range want.rights {
				if topic.AuthorizedOperations&(1<<r) == 0 {
					return fmt.Errorf("%v is missing", r)
				}
			}
			return nil
		})
		conn.close()
	}
}

// mayDescribeConfigs asks a broker for its own configuration.
func mayDescribeConfigs(conn *rawConn, broker kafkacluster.NodeID) error {
	request, resource := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(broker)
	request.Version, request.Resources = 4, append(request.Resources, resource)
	response, err := conn.roundTrip(request)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode)
}

// loginAs has a user let in, by SASL PLAIN, directly or through a proxy.
func loginAs(conn *rawConn, user string) error {
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = 1, "PLAIN"
	response, err := conn.roundTrip(handshake)
	if err != nil {
		return err
	}
	if code := response.(*kmsg.SASLHandshakeResponse).ErrorCode; code != 0 {
		return kerr.ErrorForCode(code)
	}
	authenticate := kmsg.NewPtrSASLAuthenticateRequest()
	authenticate.Version, authenticate.SASLAuthBytes = 1, []byte("\x00"+user+"\x00"+passwordOf(user))
	if response, err = conn.roundTrip(authenticate); err != nil {
		return err
	}
	return kerr.ErrorForCode(response.(*kmsg.SASLAuthenticateResponse).ErrorCode)
}

// proxyAs runs a proxy that logs in as a user.
func (s *secured) proxyAs(t *testing.T, user, mechanism string, flags ...string) *proxyProcess {
	t.Helper()
	const variable = "PASSWORD_OF_THE_PROXY"
	p := newProxyProcess(t)
	p.env = []string{variable + "=" + passwordOf(user)}
	p.brokers, p.login = securedBrokers, func(c *rawConn) error { return loginAs(c, superUser.User) }
	p.start(t, program, append([]string{
		"--bootstrap", s.Bootstrap(), "--listen", p.bootstrap, "--broker-ports", p.brokerPorts(),
		"--sasl-mechanism", mechanism, "--sasl-user", user, "--sasl-password-env", variable,
	}, flags...)...)
	t.Cleanup(func() {
		if p.output.contains(passwordOf(user)) {
			t.Error("the proxy's log holds its password")
		}
	})
	return p
}

// leaderAs connects a user through a proxy to the leader of a topic's partition
// 0, which the user need not be allowed to see.
func (s *secured) leaderAs(t *testing.T, p *proxyProcess, user, topic string) *rawConn {
	t.Helper()
	any, err := dialRaw(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer any.close()
	if err := loginAs(any, superUser.User); err != nil {
		t.Fatal(err)
	}
	metadata, err := any.metadata(topic)
	if err != nil {
		t.Fatal(err)
	}
	address, ok := brokerMap(metadata)[metadata.Topics[0].Partitions[0].Leader]
	if !ok {
		t.Fatalf("leader of %s is not served", topic)
	}
	conn, err := dialRaw(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	if err := loginAs(conn, user); err != nil {
		t.Fatal(err)
	}
	return conn
}

// appendBy sends a conditional record by franz-go.
func appendBy(ctx context.Context, client *kgo.Client, topic, expected, value string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return client.ProduceSync(ctx, &kgo.Record{
		Topic: topic, Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: []byte(expected)}},
	}).FirstErr()
}
