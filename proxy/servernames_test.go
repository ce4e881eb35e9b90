package proxy_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/certtest"
	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers on one port are told apart by the name that clients ask for, beside a
// plain listener where they have ports of their own.
func TestBrokersAreServedByServerName(t *testing.T) {
	nodes := []int32{0, 1000, 20000}
	servers := map[int32]*kafkatest.Server{}
	up := make(chan struct{})
	for _, node := range nodes {
		servers[node] = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
			<-up
			for r, ok := c.Next(); ok; r, ok = c.Next() {
				if r.APIKey == int16(kmsg.Metadata) {
					var brokers []kafkatest.Broker
					for _, n := range nodes {
						brokers = append(brokers, kafkatest.Broker{Node: n, Host: "127.0.0.1", Port: servers[n].Port()})
					}
					c.Answer(r, kafkatest.Metadata(brokers...))
					continue
				}
				answer := kmsg.NewPtrListGroupsResponse()
				answer.ErrorCode = int16(node % 1000)
				answer.Groups = []kmsg.ListGroupsResponseGroup{{Group: strconv.Itoa(int(node))}}
				c.Answer(r, answer)
			}
		})
	}
	close(up)
	authority := certtest.NewAuthority(t, "authority")
	cert, roots := authority.Sign(time.Hour, "kafka.test", "*.kafka.test"), authority.Pool()
	p := start(t, proxy.Config{
		Bootstrap: []string{servers[0].Addr()},
		Listeners: []proxy.Listener{{
			Name: "outside", Listen: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
			ServerNames: &proxy.ServerNames{Domain: "kafka.test"},
		}},
	})
	serving := p.Serving()
	if len(serving) != 2 || serving[1].Name != "outside" || len(serving[0].Brokers) != 3 {
		t.Fatalf("got %+v", serving)
	}
	address := serving[1].Addr
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	c := kafkatest.DialTLS(t, address, &tls.Config{RootCAs: roots, ServerName: "kafka.test"})
	c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 5))
	answer := kmsg.NewPtrMetadataResponse()
	answer.Version = 5
	c.Expect(1, answer)
	told := map[int32]string{}
	for _, b := range answer.Brokers {
		told[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, node := range nodes {
		name := "broker-" + strconv.Itoa(int(node)) + ".kafka.test"
		if got, want := told[node], name+":"+port; got != want || serving[1].Brokers[node] != want {
			t.Errorf("broker %d: told %s, serving %s, want %s", node, got, serving[1].Brokers[node], want)
		}
		for id, c := range map[int32]*kafkatest.Client{
			1: kafkatest.DialTLS(t, address, &tls.Config{RootCAs: roots, ServerName: name}),
			2: kafkatest.Dial(t, serving[0].Brokers[node]),
		} {
			c.Send(id, versioned(kmsg.NewPtrListGroupsRequest(), 0))
			groups := kmsg.NewPtrListGroupsResponse()
			c.Expect(id, groups)
			if len(groups.Groups) != 1 || groups.Groups[0].Group != strconv.Itoa(int(node)) {
				t.Errorf("broker %d: another has answered: %+v", node, groups)
			}
		}
	}

	for _, name := range []string{"broker-7x.kafka.test", "other.kafka.test"} {
		c := kafkatest.DialTLS(t, address, &tls.Config{RootCAs: roots, ServerName: name})
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %v, want the end", name, err)
		}
	}
	awaitMetric(t, p, "offsetproxy.input.malformed", "server_name", 2)
	// Nobody has the id, which a broker may have had that clients remember.
	gone := kafkatest.DialTLS(t, address, &tls.Config{RootCAs: roots, ServerName: "broker-7.kafka.test"})
	gone.Send(1, versioned(kmsg.NewPtrListGroupsRequest(), 0))
	if _, err := gone.Read(make([]byte, 1)); err == nil {
		t.Error("broker 7 has answered")
	}
	plain := kafkatest.Dial(t, address)
	plain.Send(1, versioned(kmsg.NewPtrListGroupsRequest(), 0))
	if n, err := io.Copy(io.Discard, plain); err == nil && n > 7 { // an alert is all that may come
		t.Errorf("a plain client was answered %d bytes", n)
	}
	awaitMetric(t, p, "offsetproxy.input.malformed", "tls_handshake", 1)
	if p.log.count("does not speak TLS") != 1 {
		t.Error("the log does not say that the client does not speak TLS")
	}
}

// awaitMetric waits until a counter has reached a value.
func awaitMetric(t *testing.T, p *running, name, attribute string, want int64) {
	t.Helper()
	for until := time.Now().Add(patience); p.metric(name, attribute) < want; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s %s: got %d, want %d", name, attribute, p.metric(name, attribute), want)
		}
	}
}
