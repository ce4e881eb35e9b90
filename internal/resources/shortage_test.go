package resources

import (
	"crypto/tls"
	"testing"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestShortages(t *testing.T) {
	needs := Needs{Connections: 1000, Descriptors: 2200, Buffered: 1 << 30, Idle: 16 << 20, Remembered: 8 << 20}
	all := needs.Memory()
	for _, test := range []struct {
		name  string
		given Given
		want  []string
	}{
		{"nothing is known", Given{}, nil},
		{"as much as is needed", Given{Descriptors: 2200, Memory: all, MemoryFrom: "f"}, nil},
		{"a descriptor less", Given{Descriptors: 2199}, []string{"the process may open 2199 files and sockets, and limits.max_connections 1000 needs 2200, since each client takes two: " +
			"clients beyond that would not be accepted. Raise the hard limit (ulimit -Hn, LimitNOFILE=), or lower limits.max_connections to 999"}},
		{"hardly any descriptor", Given{Descriptors: 100}, []string{"the process may open 100 files and sockets, and limits.max_connections 1000 needs 2200, since each client takes two: " +
			"clients beyond that would not be accepted. Raise the hard limit (ulimit -Hn, LimitNOFILE=)"}},
		{"half of the memory", Given{Memory: 512 << 20, MemoryFrom: "memory.max"}, []string{"memory is limited to 512MiB (memory.max), and the settings allow 1072MiB: " +
			"limits.max_buffered 1024MiB, 1000 idle connections 16MiB, what is remembered of partitions and producers 8MiB. Beyond the limit the process would be killed. " +
			"Lower limits.max_buffered to 412MiB, or raise the limit; and set GOMEMLIMIT to about 460MiB, so that garbage is collected in time"}},
		{"a byte less by GOMEMLIMIT", Given{Memory: all - 1, MemoryFrom: "GOMEMLIMIT"}, []string{"memory is limited to 1071MiB (GOMEMLIMIT), and the settings allow 1072MiB: " +
			"limits.max_buffered 1024MiB, 1000 idle connections 16MiB, what is remembered of partitions and producers 8MiB. Beyond the limit the process would do little else than collect garbage. " +
			"Lower limits.max_buffered to 916MiB, or raise the limit"}},
		{"hardly any memory", Given{Memory: 32 << 20, MemoryFrom: "memory.max"}, []string{"memory is limited to 32MiB (memory.max), and the settings allow 1072MiB: " +
			"limits.max_buffered 1024MiB, 1000 idle connections 16MiB, what is remembered of partitions and producers 8MiB. Beyond the limit the process would be killed. " +
			"Raise the limit, or lower limits.max_connections, idle_views and idle_producers with max_buffered; and set GOMEMLIMIT to about 28MiB, so that garbage is collected in time"}},
	} {
		got := Shortages(test.given, needs)
		if len(got) != len(test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
			continue
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("%s:\n got %s\nwant %s", test.name, got[i], test.want[i])
			}
		}
	}
}

func TestNeeded(t *testing.T) {
	cfg, err := proxy.Config{Bootstrap: []string{"b:9092"}, Listen: "127.0.0.1:9092", MaxConnections: 100, MaxBufferedBytes: 1 << 20, IdleViews: 10, IdleProducers: 10}.InForce()
	if err != nil {
		t.Fatal(err)
	}
	want := Needs{Connections: 100, Descriptors: 400, Buffered: 1 << 20, Idle: 100 * idlePlain, Remembered: 10*perView + 10*perProducer}
	if got := Needed(&cfg, false); got != want {
		t.Errorf("plain: got %+v, want %+v", got, want)
	}
	want.Idle = 100 * (idlePlain + idleTLS)
	if got := Needed(&cfg, true); got != want {
		t.Errorf("TLS upstream: got %+v, want %+v", got, want)
	}
	cfg.Listeners = []proxy.Listener{{TLS: &tls.Config{}}}
	want.Idle = 100 * (idlePlain + 2*idleTLS)
	if got := Needed(&cfg, true); got != want {
		t.Errorf("TLS on both sides: got %+v, want %+v", got, want)
	}
}
