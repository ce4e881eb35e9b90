package proxy

import "testing"

func TestServerNamesOfBrokers(t *testing.T) {
	names := &ServerNames{Domain: "kafka.example", Bootstrap: "bootstrap.kafka.example"}
	for _, test := range []struct {
		name string
		node int32
		ok   bool
	}{
		{"", unknownNode, true},
		{"bootstrap.kafka.example", unknownNode, true},
		{"Bootstrap.Kafka.Example.", unknownNode, true},
		{"broker-0.kafka.example", 0, true},
		{"broker-20000.kafka.example", 20000, true},
		{"BROKER-7.KAFKA.EXAMPLE", 7, true},
		{"kafka.example", unknownNode, false},
		{"broker-.kafka.example", unknownNode, false},
		{"broker-01.kafka.example", unknownNode, false},
		{"broker--1.kafka.example", unknownNode, false},
		{"broker-99999999999.kafka.example", unknownNode, false},
		{"broker-1.other.example", unknownNode, false},
		{"x.broker-1.kafka.example", unknownNode, false},
		{"broker-1", unknownNode, false},
	} {
		node, ok := names.node(test.name)
		if node != test.node || ok != test.ok {
			t.Errorf("%q: got %d, %v, want %d, %v", test.name, node, ok, test.node, test.ok)
		}
	}
	if got, want := names.host(1000), "broker-1000.kafka.example"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
