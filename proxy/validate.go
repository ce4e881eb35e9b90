package proxy

import (
	"fmt"
	"log/slog"
	"net"
	"path"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
)

// defaultFenceID is far above any producer id that Kafka hands out.
const defaultFenceID = 0x4f66667365740001

// validate fills in defaults and checks what is given. An error wraps
// ErrConfig and names the field.
func (c *Config) validate() error {
	host, port, err := c.checkAddresses()
	if err != nil {
		return err
	}
	if err := c.checkPorts(port); err != nil {
		return err
	}
	if c.AdvertisedHost == "" {
		c.AdvertisedHost = host
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			c.AdvertisedHost = "127.0.0.1"
		}
	}
	for i, rule := range c.Rules {
		if _, err := path.Match(rule.Topics, ""); err != nil || rule.Topics == "" {
			return fmt.Errorf("%w: Rules[%d].Topics: bad pattern %q", ErrConfig, i, rule.Topics)
		}
		if rule.Mode < ModeOff || rule.Mode > ModeRequire {
			return fmt.Errorf("%w: Rules[%d].Mode: unknown mode %d", ErrConfig, i, rule.Mode)
		}
	}
	if c.Default < ModeOff || c.Default > ModeRequire {
		return fmt.Errorf("%w: Default: unknown mode %d", ErrConfig, c.Default)
	}
	if c.BrokerKind < ApacheKafka || c.BrokerKind > EmbeddedKfake {
		return fmt.Errorf("%w: BrokerKind: unknown kind %d", ErrConfig, c.BrokerKind)
	}
	if c.FenceID == 0 {
		c.FenceID = defaultFenceID
	}
	if c.FenceID < 0 {
		return fmt.Errorf("%w: FenceID: %d is negative", ErrConfig, c.FenceID)
	}
	if err := c.defaultNumbers(); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meter == nil {
		c.Meter = noop.NewMeterProvider().Meter("")
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.ListenFunc == nil {
		c.ListenFunc = net.Listen
	}
	return nil
}

func (c *Config) checkAddresses() (host string, port int, err error) {
	if len(c.Bootstrap) == 0 {
		return "", 0, fmt.Errorf("%w: Bootstrap: at least one host:port is needed", ErrConfig)
	}
	for i, address := range c.Bootstrap {
		h, p, err := splitAddress(address)
		if err != nil || h == "" || p == 0 {
			return "", 0, fmt.Errorf("%w: Bootstrap[%d]: %q is not host:port", ErrConfig, i, address)
		}
	}
	host, port, err = splitAddress(c.Listen)
	if err != nil {
		return "", 0, fmt.Errorf("%w: Listen: %q is not host:port", ErrConfig, c.Listen)
	}
	return host, port, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, int(n), err
}

const maxPort = 65535

func (c *Config) checkPorts(listenPort int) error {
	r := c.BrokerPorts
	if r == (PortRange{}) && listenPort != 0 {
		r = PortRange{First: listenPort + 1, Last: maxPort}
		c.BrokerPorts = r
	}
	if r != (PortRange{}) && (r.First < 1 || r.Last > maxPort || r.First > r.Last) {
		return fmt.Errorf("%w: BrokerPorts: %d-%d is not a range of ports", ErrConfig, r.First, r.Last)
	}
	if listenPort != 0 && r.First <= listenPort && listenPort <= r.Last {
		return fmt.Errorf("%w: BrokerPorts: %d-%d holds the port of Listen", ErrConfig, r.First, r.Last)
	}
	used := map[int]int32{}
	for node, port := range c.NodePorts {
		if port < 1 || port > maxPort || port == listenPort {
			return fmt.Errorf("%w: NodePorts: port %d of node %d cannot be used", ErrConfig, port, node)
		}
		if other, taken := used[port]; taken {
			return fmt.Errorf("%w: NodePorts: nodes %d and %d share port %d", ErrConfig, min(node, other), max(node, other), port)
		}
		used[port] = node
	}
	return nil
}

// defaultNumbers replaces zeros by defaults and refuses negative values.
func (c *Config) defaultNumbers() error {
	const mebibyte = 1 << 20
	for _, f := range []struct {
		name    string
		value   *int
		initial int
	}{
		{"IdleViews", &c.IdleViews, 100_000},
		{"MaxFrameBytes", &c.MaxFrameBytes, 100 * mebibyte},
		{"MaxDecompressedBytes", &c.MaxDecompressedBytes, 64 * mebibyte},
		{"MaxProducePartitions", &c.MaxProducePartitions, 16_384},
		{"MaxPendingRequests", &c.MaxPendingRequests, 1024},
		{"MaxConnections", &c.MaxConnections, 10_000},
		{"MaxRewrittenBytes", &c.MaxRewrittenBytes, 64 * mebibyte},
		{"MaxHeldBytes", &c.MaxHeldBytes, mebibyte},
	} {
		if *f.value < 0 {
			return fmt.Errorf("%w: %s: %d is negative", ErrConfig, f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.initial
		}
	}
	for _, f := range []struct {
		name    string
		value   *time.Duration
		initial time.Duration
	}{
		{"ViewMaxAge", &c.ViewMaxAge, 60 * time.Second},
		{"AdmissionWait", &c.AdmissionWait, 50 * time.Millisecond},
		{"AssertedProducerExpiry", &c.AssertedProducerExpiry, 0},
		{"AssertedConnectionIdle", &c.AssertedConnectionIdle, 0},
		{"ClockSkew", &c.ClockSkew, 10 * time.Second},
		{"DialTimeout", &c.DialTimeout, 5 * time.Second},
		{"HandshakeTimeout", &c.HandshakeTimeout, 30 * time.Second},
		{"IdleTimeout", &c.IdleTimeout, 0},
		{"DrainTimeout", &c.DrainTimeout, 10 * time.Second},
	} {
		if *f.value < 0 {
			return fmt.Errorf("%w: %s: %s is negative", ErrConfig, f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.initial
		}
	}
	return nil
}
