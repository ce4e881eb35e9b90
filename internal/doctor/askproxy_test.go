package doctor

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestProxiesThatSpeakNoHTTP: whoever names the Kafka port in place of the admin port is
// told so; what is not reached is not.
func TestProxiesThatSpeakNoHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close() // as on whoever speaks HTTP to it
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	at := urlOf(listener.Addr().String())
	if p := askProxy(t.Context(), client, at); !strings.Contains(p.Failed.Text, "is this the admin address (metrics.listen), and not the Kafka port?") {
		t.Errorf("got %+v", p.Failed)
	}
	listener.Close()
	<-closed
	if p := askProxy(t.Context(), client, at); !p.Failed.Failed() || strings.Contains(p.Failed.Text, "metrics.listen") {
		t.Errorf("got %+v", p.Failed)
	}
}

// TestHiddenBrokersOfAProxy are read from its status.
func TestHiddenBrokersOfAProxy(t *testing.T) {
	got := hiddenBy([]byte(`{"brokers":[{"node":1,"in_cluster":true},{"node":2,"in_cluster":true,"hidden":{"b":"port 9 is in use","a":"no port"}},{"node":3,"in_cluster":false,"hidden":{"a":"x"}}]}`))
	want := []string{"broker 2 is hidden from clients of listener a: no port", "broker 2 is hidden from clients of listener b: port 9 is in use"}
	if !slices.Equal(got, want) || hiddenBy([]byte("<html>")) != nil {
		t.Errorf("got %q, want %q", got, want)
	}
}
