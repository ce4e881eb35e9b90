package config

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

const twoListeners = `
bootstrap: k:9093
listeners:
- name: inside
  listen: 127.0.0.1:9092
- name: outside
  listen: 0.0.0.0:9443
  server_names: {domain: Kafka.Example, bootstrap: kafka.example, port: 443}
  tls: {cert_file: /c/tls.crt, key_file: /c/tls.key, client_ca_file: /c/ca.crt, min_version: 1.3}
- listen: 0.0.0.0:9500
  advertised_host: p.example
  broker_ports: {first: 9501, last: 9600}
  node_ports: {20000: 9700}
  deny_apis: [createtopics, 20]
  allow_apis: Metadata, Fetch, 600
  read_only: true
  proxy_protocol: require
  proxy_protocol_from: 10.1.2.3, 10.9.8.7/16, 2001:db8::/32
  tls: {cert_file: a, key_file: b}
upstream:
  tls: {ca_file: /k/ca.crt, cert_file: /k/tls.crt, key_file: /k/tls.key, server_name: kafka.internal}
`

func TestListeners(t *testing.T) {
	got, err := Parse("f.yaml", []byte(twoListeners))
	if err != nil {
		t.Fatal(err)
	}
	want := []EffectiveListener{
		{Name: "inside", Listen: "127.0.0.1:9092", AdvertisedHost: "127.0.0.1", BrokerPorts: "9093-9442"},
		{
			Name: "outside", Listen: "0.0.0.0:9443", ServerNames: &EffectiveServerNames{"kafka.example", "kafka.example", 443},
			TLS: &EffectiveTLS{CertFile: "/c/tls.crt", KeyFile: "/c/tls.key", CAFile: "/c/ca.crt", ClientAuth: "require", MinVersion: "1.3"},
		},
		{
			Name: "0.0.0.0:9500", Listen: "0.0.0.0:9500", AdvertisedHost: "p.example", BrokerPorts: "9501-9600", NodePorts: map[int32]int{20000: 9700},
			TLS:       &EffectiveTLS{CertFile: "a", KeyFile: "b", ClientAuth: "none", MinVersion: "1.2"},
			AllowAPIs: []string{"Metadata", "Fetch", "600"}, DenyAPIs: []string{"CreateTopics", "DeleteTopics"}, ReadOnly: true,
			ProxyProtocolFrom: []string{"10.1.2.3/32", "10.9.0.0/16", "2001:db8::/32"},
		},
	}
	effective := got.Effective()
	if diff := cmp.Diff(want, effective.Listeners); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
	upstream := tlsfiles.Files{Cert: "/k/tls.crt", Key: "/k/tls.key", CA: "/k/ca.crt", MinVersion: tls.VersionTLS12, ServerName: "kafka.internal"}
	if got.UpstreamTLS == nil || *got.UpstreamTLS != upstream {
		t.Errorf("upstream: got %+v, want %+v", got.UpstreamTLS, upstream)
	}
	if got.Proxy.Listen != "" || effective.Listen != "" {
		t.Error("there is a listener besides")
	}
	var text strings.Builder
	if _, err := effective.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"127.0.0.1:9092, and are told the host 127.0.0.1", "0.0.0.0:9443 as kafka.example, and are told broker-<node id>.kafka.example:443",
		"clients show certificates (require) of the authorities in /c/ca.crt", "node id 20000 on 9700", "CreateTopics, DeleteTopics may not be used", "read-only", "only from 10.1.2.3/32, 10.9.0.0/16", "by the authorities of /k/ca.crt, showing /k/tls.crt",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &text)
		}
	}
	// What a listener is to be spoken to with is not a matter of the proxy alone.
	for _, l := range got.Proxy.Listeners {
		if _, files := got.ListenerTLS[l.Name]; files != (l.TLS != nil) {
			t.Errorf("listener %s: files %v, TLS wanted %v", l.Name, files, l.TLS != nil)
		}
	}
	plain, err := Parse("f.yaml", []byte("bootstrap: k:1\nupstream: {tls: {enabled: false, ca_file: x}}"))
	if err != nil || plain.UpstreamTLS != nil {
		t.Errorf("TLS that is not enabled: got %+v, %v", plain.UpstreamTLS, err)
	}
	on, err := Parse("f.yaml", []byte("bootstrap: k:1\nupstream: {tls: {enabled: true}}"))
	if err != nil || on.UpstreamTLS == nil {
		t.Errorf("TLS by the system's authorities: got %+v, %v", on.UpstreamTLS, err)
	}
}

func TestListenersThatCannotBe(t *testing.T) {
	for _, c := range []struct{ src, path string }{
		{"listen: 127.0.0.1:1\nlisteners: [{listen: 127.0.0.1:2}]", "listen"},
		{"advertised_host: h\nlisteners: [{listen: 127.0.0.1:2}]", "advertised_host"},
		{"broker_ports: 4-5\nlisteners: [{listen: 127.0.0.1:2}]", "broker_ports"},
		{"node_ports: {4: 5}\nlisteners: [{listen: 127.0.0.1:2}]", "node_ports"},
		{"listeners: [{name: a}]", "listeners[0].listen"},
		{"listeners: [{listen: 1}]", "listeners[0].listen"},
		{"listeners: [{name: a, listen: ':1'}, {name: a, listen: ':2'}]", "listeners[1].name"},
		{"listeners: [{listen: ':1', broker_ports: 1-2}]", "listeners[0].broker_ports"},
		{"listeners: [{listen: ':1', node_ports: {7: 1}}]", "listeners[0].node_ports.7"},
		{"listeners: [{listen: ':1', advertised_host: 'h:1'}]", "listeners[0].advertised_host"},
		{"listeners: [{listen: ':1', server_names: {port: 7}}]", "listeners[0].server_names.domain"},
		{"listeners: [{listen: ':1', server_names: {domain: d}}]", "listeners[0].tls"},
		{"listeners: [{listen: ':1', server_names: {domain: 'a b'}, tls: {cert_file: c, key_file: k}}]", "listeners[0].server_names.domain"},
		{"listeners: [{listen: ':1', tls: {cert_file: c}}]", "listeners[0].tls.key_file"},
		{"listeners: [{listen: ':1', tls: {key_file: c}}]", "listeners[0].tls.cert_file"},
		{"listeners: [{listen: ':1', tls: {cert_file: c, key_file: k, client_auth: require}}]", "listeners[0].tls.client_ca_file"},
		{"listeners: [{listen: ':1', tls: {cert_file: c, key_file: k, client_auth: maybe}}]", "listeners[0].tls.client_auth"},
		{"listeners: [{listen: ':1', tls: {cert_file: c, key_file: k, min_version: 1.1}}]", "listeners[0].tls.min_version"},
		{"listeners: [{listen: ':1'}, {listen: ':5'}]\nmetrics: {listen: ':5'}", "metrics.listen"},
		{"listeners: [{listen: ':1', allow_apis: [Fetch, NoSuch]}]", "listeners[0].allow_apis[1]"},
		{"listeners: [{listen: ':1', deny_apis: [-1]}]", "listeners[0].deny_apis[0]"},
		{"listeners: [{listen: ':1', deny_apis: [ApiVersions]}]", "listeners[0].deny_apis[0]"},
		{"listeners: [{listen: ':1', read_only: maybe}]", "listeners[0].read_only"},
		{"listeners: [{listen: ':1', proxy_protocol: maybe}]", "listeners[0].proxy_protocol"},
		{"listeners: [{listen: ':1', proxy_protocol: require}]", "listeners[0].proxy_protocol_from"},
		{"listeners: [{listen: ':1', proxy_protocol: require, proxy_protocol_from: [10.0.0.1, nobody]}]", "listeners[0].proxy_protocol_from[1]"},
		{"listeners: [{listen: ':1', proxy_protocol_from: [10.0.0.1]}]", "listeners[0].proxy_protocol_from[0]"},
		{"upstream: {tls: {cert_file: c}}", "upstream.tls.key_file"},
		{"upstream: {tls: {key_file: c}}", "upstream.tls.cert_file"},
		{"upstream: {tls: {enabled: maybe}}", "upstream.tls.enabled"},
		{"upstream: {tls: {server_name: 'a b'}}", "upstream.tls.server_name"},
	} {
		_, err := Parse("f.yaml", []byte("bootstrap: k:1\n"+c.src))
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Problems[0].Path != c.path {
			t.Errorf("%s: got %v, want a problem with %s", c.src, err, c.path)
		}
	}
	_, err := Parse("f.yaml", []byte("bootstrap: k:1\nlisteners: [{listen: '127.0.0.1:9092'}, {name: b, listen: '127.0.0.1:9092'}]"))
	if err == nil {
		t.Error("two listeners on a port: no error")
	}
	var bad *proxy.ConfigError
	if errors.As(err, &bad) {
		t.Error("the error is not in the words of the file")
	}
}
