package proxy_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestBrokersAreServedOnDeterministicPorts(t *testing.T) {
	listen, ports := freePorts(t, 8)
	spare, _ := freePorts(t, 1)
	_, override, err := net.SplitHostPort(spare)
	if err != nil {
		t.Fatal(err)
	}
	var overridden int
	if _, err := fmt.Sscan(override, &overridden); err != nil {
		t.Fatal(err)
	}
	server := clusterOf(t, 0, 3, 5, 12)
	p := start(t, proxy.Config{
		Bootstrap: []string{server.Addr()}, Listen: listen, BrokerPorts: ports,
		NodePorts: map[int32]int{12: overridden},
	})
	want := map[int32]string{
		0: fmt.Sprint("127.0.0.1:", ports.First), 3: fmt.Sprint("127.0.0.1:", ports.First+3),
		5: fmt.Sprint("127.0.0.1:", ports.First+5), 12: fmt.Sprint("127.0.0.1:", overridden),
	}
	got := p.BrokerAddrs()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for node, address := range want {
		c := kafkatest.Dial(t, address)
		c.Send(node, versioned(kmsg.NewPtrListGroupsRequest(), 0))
		if got := c.NextID(); got != node {
			t.Errorf("broker %d: got an answer to %d", node, got)
		}
	}
}

// clusterOf is one server that says it is all these brokers.
func clusterOf(t *testing.T, nodes ...int32) *kafkatest.Server {
	var server *kafkatest.Server
	up := make(chan struct{})
	server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		for {
			r, ok := c.Next()
			if !ok {
				return
			}
			if r.APIKey != int16(kmsg.Metadata) {
				echo(c, r)
				continue
			}
			var brokers []kafkatest.Broker
			for _, node := range nodes {
				brokers = append(brokers, kafkatest.Broker{Node: node, Host: "127.0.0.1", Port: server.Port()})
			}
			c.Answer(r, kafkatest.Metadata(brokers...))
		}
	})
	close(up)
	return server
}

func TestListenerIsOpenBeforeABrokerIsFirstShown(t *testing.T) {
	other := kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			c.Answer(r, kmsg.NewPtrListGroupsResponse())
		}
	})
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		answer := kmsg.NewPtrFindCoordinatorResponse()
		answer.NodeID, answer.Host, answer.Port = 42, "127.0.0.1", other.Port()
		c.Answer(r, answer)
		return true
	})
	if _, known := p.BrokerAddrs()[42]; known {
		t.Fatal("broker 42 is known too early")
	}
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrFindCoordinatorRequest(), 3))
	answer := kmsg.NewPtrFindCoordinatorResponse()
	answer.Version = 3
	c.Expect(1, answer)
	address := net.JoinHostPort(answer.Host, fmt.Sprint(answer.Port))
	if got := p.BrokerAddrs()[42]; got != address {
		t.Errorf("client was told %s, broker 42 is served on %s", address, got)
	}
	direct := kafkatest.Dial(t, address)
	direct.Send(2, versioned(kmsg.NewPtrListGroupsRequest(), 0))
	if got := direct.NextID(); got != 2 {
		t.Errorf("got an answer to %d, want 2", got)
	}
}

func TestBrokerThatMovesKeepsItsPort(t *testing.T) {
	var places [2]*kafkatest.Server
	for i := range places {
		places[i] = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
			for r, ok := c.Next(); ok; r, ok = c.Next() {
				answer := kmsg.NewPtrListGroupsResponse()
				answer.ErrorCode = int16(i)
				c.Answer(r, answer)
			}
		})
	}
	moved := 0
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		c.Answer(r, kafkatest.Metadata(kafkatest.Broker{Node: 9, Host: "127.0.0.1", Port: places[moved].Port()}))
		moved = 1
		return true
	})
	c := kafkatest.Dial(t, p.Addr())
	var before string
	for i := range int16(2) {
		c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 1))
		c.Next()
		address := p.BrokerAddrs()[9]
		if i == 1 && address != before {
			t.Errorf("port changed from %s to %s", before, address)
		}
		before = address
		direct := kafkatest.Dial(t, address)
		direct.Send(3, versioned(kmsg.NewPtrListGroupsRequest(), 0))
		answer := kmsg.NewPtrListGroupsResponse()
		direct.Expect(3, answer)
		if answer.ErrorCode != i {
			t.Errorf("after %d moves the broker is dialled at place %d", i, answer.ErrorCode)
		}
	}
}

func TestBrokerWhosePortIsTakenIsHidden(t *testing.T) {
	server := clusterOf(t, 0, 1)
	var mu sync.Mutex
	opened := 0
	p := start(t, proxy.Config{
		Bootstrap: []string{server.Addr()},
		ListenFunc: func(network, address string) (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			if opened++; opened >= 3 {
				return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
			}
			return net.Listen(network, address)
		},
	})
	if got := len(p.BrokerAddrs()); got != 1 {
		t.Errorf("got %d brokers, want 1", got)
	}
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrMetadataRequest(), 1))
	answer := kmsg.NewPtrMetadataResponse()
	answer.Version = 1
	c.Expect(1, answer)
	if got := len(answer.Brokers); got != 1 {
		t.Errorf("client sees %d brokers, want 1", got)
	}
	p.awaitLog("cannot listen for broker")
	var hidden []proxy.BrokerStatus
	status := p.Status()
	for _, b := range status.Brokers {
		if len(b.Hidden) > 0 {
			hidden = append(hidden, b)
		}
	}
	if len(status.Brokers) != 2 || len(hidden) != 1 || len(hidden[0].Addresses) != 0 || hidden[0].Upstream != server.Addr() ||
		!strings.Contains(hidden[0].Hidden[status.Listeners[0].Name], "is in use by another program: free the port, or choose other broker_ports") {
		t.Errorf("got the brokers %+v", status.Brokers)
	}
	if got := p.metric("offsetproxy.brokers.hidden", "port_in_use"); got != 1 {
		t.Errorf("got %d hidden brokers counted, want 1", got)
	}
}

// Ready means that a client can be served, not only that a broker answers.
func TestNotReadyWhileEveryBrokerIsHidden(t *testing.T) {
	unready := func(t *testing.T, p *running) {
		t.Helper()
		p.awaitLog("every broker is hidden")
		select {
		case <-p.Ready():
			t.Error("ready although no broker has a port")
		default:
		}
	}
	t.Run("whose port is in use until it is free", func(t *testing.T) {
		server := clusterOf(t, 0)
		var free, bootstrap atomic.Bool
		p := startUnready(t, proxy.Config{
			Bootstrap: []string{server.Addr()},
			ListenFunc: func(network, address string) (net.Listener, error) {
				if bootstrap.CompareAndSwap(false, true) || free.Load() {
					return net.Listen(network, address)
				}
				return nil, errors.New("port taken")
			},
		})
		unready(t, p)
		free.Store(true)
		select {
		case <-p.Ready():
		case <-time.After(patience):
			t.Fatal("not ready after the port was free")
		}
		if got := len(p.BrokerAddrs()); got != 1 {
			t.Errorf("got %d brokers, want 1", got)
		}
		p.awaitLog("broker has its port now")
		if got := p.metric("offsetproxy.brokers.hidden", "cannot_listen"); got != 0 {
			t.Errorf("got %d hidden brokers counted, want none", got)
		}
		if got := p.log.count("every broker is hidden"); got != 1 {
			t.Errorf("logged %d times, want once", got)
		}
	})
	t.Run("outside the range", func(t *testing.T) {
		server := clusterOf(t, 70, 71)
		listen, ports := freePorts(t, 2)
		unready(t, startUnready(t, proxy.Config{Bootstrap: []string{server.Addr()}, Listen: listen, BrokerPorts: ports}))
	})
}

func TestBootstrapTriesTheNextBroker(t *testing.T) {
	dead := kafkatest.NewServer(t, func(*kafkatest.Conn) {})
	deadPort := dead.Port()
	dead.Close()
	var server *kafkatest.Server
	up := make(chan struct{})
	server = kafkatest.NewServer(t, func(c *kafkatest.Conn) {
		<-up
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			if r.APIKey != int16(kmsg.Metadata) {
				echo(c, r)
				continue
			}
			c.Answer(r, kafkatest.Metadata(kafkatest.Broker{Node: 1, Host: "127.0.0.1", Port: deadPort},
				kafkatest.Broker{Node: 2, Host: "127.0.0.1", Port: server.Port()}))
		}
	})
	close(up)
	// The first bootstrap server is down as well.
	p := start(t, proxy.Config{Bootstrap: []string{fmt.Sprint("127.0.0.1:", deadPort), server.Addr()}})
	for range 4 {
		c := kafkatest.Dial(t, p.Addr())
		c.Send(1, versioned(kmsg.NewPtrListGroupsRequest(), 0))
		if got := c.NextID(); got != 1 {
			t.Errorf("got an answer to %d", got)
		}
	}
	// A connection to the dead broker itself is closed, with the reason.
	c := kafkatest.Dial(t, p.BrokerAddrs()[1])
	c.Send(1, versioned(kmsg.NewPtrListGroupsRequest(), 0))
	c.ExpectClosed()
	p.awaitLog("upstream cannot be reached")
}

func TestProxyStartsBeforeItsCluster(t *testing.T) {
	reserved := kafkatest.NewServer(t, func(*kafkatest.Conn) {})
	address := reserved.Addr()
	reserved.Close()
	p := startUnready(t, proxy.Config{Bootstrap: []string{address}})
	p.awaitLog("cluster cannot be reached")
	select {
	case <-p.Ready():
		t.Fatal("ready without a cluster")
	default:
	}
	if p.Addr() == "" {
		t.Error("bootstrap listener is not open")
	}
	p.stop()
	p.wait()
}
