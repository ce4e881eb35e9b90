package proxy_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestListenersInForce(t *testing.T) {
	inside := proxy.Listener{Name: "inside", Listen: "127.0.0.1:9092"}
	outside := proxy.Listener{Name: "outside", Listen: "0.0.0.0:9192", AdvertisedHost: "proxy.example"}
	named := proxy.Listener{
		Name: "named", Listen: "0.0.0.0:9443", TLS: &tls.Config{},
		ServerNames: &proxy.ServerNames{Domain: "Kafka.Example"},
	}
	got, err := proxy.Config{Bootstrap: []string{"b:1"}, Listeners: []proxy.Listener{inside, outside, named}}.InForce()
	if err != nil {
		t.Fatal(err)
	}
	all := got.Listeners
	if len(all) != 3 || got.Listen != "" {
		t.Fatalf("got %d listeners and %q, want three", len(all), got.Listen)
	}
	// A range ends where another listener's ports begin.
	for i, want := range []proxy.PortRange{{First: 9093, Last: 9191}, {First: 9193, Last: 9442}, {}} {
		if all[i].BrokerPorts != want {
			t.Errorf("listener %s: got ports %v, want %v", all[i].Name, all[i].BrokerPorts, want)
		}
	}
	if got := all[0].AdvertisedHost + " " + all[1].AdvertisedHost; got != "127.0.0.1 proxy.example" {
		t.Errorf("hosts: got %s", got)
	}
	if got := *all[2].ServerNames; got != (proxy.ServerNames{Domain: "kafka.example", Bootstrap: "kafka.example"}) {
		t.Errorf("server names: got %+v", got)
	}
	if named.ServerNames.Domain != "Kafka.Example" {
		t.Error("what was given has changed")
	}
	both, err := proxy.Config{Bootstrap: []string{"b:1"}, Listen: "127.0.0.1:9092", Listeners: []proxy.Listener{outside}}.InForce()
	if err != nil || both.BrokerPorts != (proxy.PortRange{First: 9093, Last: 9191}) || len(both.AllListeners()) != 2 {
		t.Errorf("with Listen: got %v, %+v", err, both.AllListeners())
	}
}

func TestListenersThatCannotBe(t *testing.T) {
	plain := proxy.Listener{Listen: "127.0.0.1:9092"}
	names := func(s proxy.ServerNames) proxy.Listener {
		return proxy.Listener{Listen: "127.0.0.1:9443", TLS: &tls.Config{}, ServerNames: &s}
	}
	for _, test := range []struct {
		field     string
		listen    string
		listeners []proxy.Listener
	}{
		{"Listen", "", nil},
		{"Listeners[0].Listen", "", []proxy.Listener{{Listen: "9092"}}},
		{"Listeners[0].Listen", "127.0.0.1:9092", []proxy.Listener{{Name: "other", Listen: "0.0.0.0:9092"}}},
		{"Listeners[1].Name", "", []proxy.Listener{plain, plain}},
		{"Listeners[1].Listen", "", []proxy.Listener{plain, {Listen: ":9100", BrokerPorts: proxy.PortRange{First: 9090, Last: 9099}}}},
		{"Listeners[1].Listen", "", []proxy.Listener{
			{Listen: ":9092", BrokerPorts: proxy.PortRange{First: 9200, Last: 9300}}, {Listen: ":9100", BrokerPorts: proxy.PortRange{First: 9300, Last: 9400}},
		}},
		{"Listeners[1].Listen", "", []proxy.Listener{
			{Listen: ":9092", BrokerPorts: proxy.PortRange{First: 9200, Last: 9300}}, {Listen: ":9100", NodePorts: map[int32]int{7: 9250}},
		}},
		{"Listeners[1].BrokerPorts", "", []proxy.Listener{
			{Listen: ":9092", BrokerPorts: proxy.PortRange{First: 9101, Last: 9300}}, {Listen: ":9100"},
		}},
		{"Listeners[0].NodePorts", "", []proxy.Listener{{Listen: ":9092", NodePorts: map[int32]int{1: 9092}}}},
		{"Listeners[0].ServerNames", "", []proxy.Listener{{Listen: ":9092", ServerNames: &proxy.ServerNames{Domain: "d"}}}},
		{"Listeners[0].ServerNames", "", []proxy.Listener{{Listen: ":9092", TLS: &tls.Config{}, ServerNames: &proxy.ServerNames{Domain: "d"}, NodePorts: map[int32]int{1: 2}}}},
		{"Listeners[0].ProxyProtocol.From", "", []proxy.Listener{{Listen: ":9092", ProxyProtocol: &proxy.ProxyProtocol{}}}},
		{"Listeners[0].ServerNames.Domain", "", []proxy.Listener{names(proxy.ServerNames{})}},
		{"Listeners[0].ServerNames.Port", "", []proxy.Listener{names(proxy.ServerNames{Domain: "d", Port: 70000})}},
		{"Listeners[0].ServerNames.Bootstrap", "", []proxy.Listener{names(proxy.ServerNames{Domain: "d", Bootstrap: "broker-3.d"})}},
	} {
		_, err := proxy.Config{Bootstrap: []string{"b:1"}, Listen: test.listen, Listeners: test.listeners}.InForce()
		var bad *proxy.ConfigError
		if !errors.As(err, &bad) || bad.Field != test.field {
			t.Errorf("got %v, want a *ConfigError for %s", err, test.field)
		}
	}
	// Ports of different addresses do not meet.
	if _, err := (proxy.Config{Bootstrap: []string{"b:1"}, Listen: "127.0.0.1:9092", Listeners: []proxy.Listener{{Listen: "127.0.0.2:9092"}}}).InForce(); err != nil {
		t.Errorf("the same port of two addresses: %v", err)
	}
}
