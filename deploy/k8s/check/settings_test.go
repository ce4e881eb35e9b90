package check

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// settings are those of a proxy's configuration that manifests have to fit. Whether there
// are such settings, and what they mean, the program's own tests say.
type settings struct {
	listener
	Listeners []listener `json:"listeners"`
	Upstream  struct {
		TLS struct {
			CA string `json:"ca_file"`
		} `json:"tls"`
		SASL struct {
			Password string `json:"password_file"`
		} `json:"sasl"`
	} `json:"upstream"`
	Limits struct {
		MaxBuffered  string `json:"max_buffered"`
		DrainDelay   string `json:"drain_delay"`
		DrainTimeout string `json:"drain_timeout"`
	} `json:"limits"`
	Metrics struct {
		Listen string `json:"listen"`
	} `json:"metrics"`
}

// listener is one address of a proxy.
type listener struct {
	Listen         string `json:"listen"`
	AdvertisedHost string `json:"advertised_host"`
	BrokerPorts    string `json:"broker_ports"`
	ServerNames    struct {
		Port int32 `json:"port"`
	} `json:"server_names"`
	TLS struct {
		Cert string `json:"cert_file"`
		Key  string `json:"key_file"`
	} `json:"tls"`
	SASL struct {
		Users string `json:"users_file"`
	} `json:"sasl"`
}

func readSettings(text string) (settings, error) {
	var s settings
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	if s.Listen != "" {
		s.Listeners = append(s.Listeners, s.listener)
	}
	if len(s.Listeners) == 0 {
		return s, fmt.Errorf("a configuration without a listener")
	}
	return s, nil
}

// files are those that the configuration names.
func (s settings) files() []string {
	files := []string{s.Upstream.TLS.CA, s.Upstream.SASL.Password}
	for _, l := range s.Listeners {
		files = append(files, l.TLS.Cert, l.TLS.Key, l.SASL.Users)
	}
	return files
}

// address splits host:port.
func address(t *testing.T, text string) (host string, port int32) {
	t.Helper()
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, parsePort(t, number)
}

// ports are those that clients use of a listener: its own, and those of brokers.
func (l listener) ports(t *testing.T) []int32 {
	t.Helper()
	_, port := address(t, l.Listen)
	ports := []int32{port}
	if first, last, ok := strings.Cut(l.BrokerPorts, "-"); ok {
		for port := parsePort(t, first); port <= parsePort(t, last); port++ {
			ports = append(ports, port)
		}
	}
	return ports
}

// loopback reports whether only the Pod itself gets to a listener.
func (l listener) loopback(t *testing.T) bool {
	t.Helper()
	host, _ := address(t, l.Listen)
	return net.ParseIP(host).IsLoopback()
}

func parsePort(t *testing.T, text string) int32 {
	t.Helper()
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

func parseTime(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// parseSize reads 64MiB, as the program and Go write it; Kubernetes leaves out the B.
func parseSize(t *testing.T, text string) int64 {
	t.Helper()
	size, err := resource.ParseQuantity(strings.TrimSuffix(text, "B"))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return size.Value()
}
