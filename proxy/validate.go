package proxy

import (
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
)

// defaultFenceID is far above any producer id that Kafka hands out.
const defaultFenceID = 0x4f66667365740001

const defaultProbeTopic = "__offsetproxy_probe"

// topicName is what Kafka takes for one, but for '.' and '..'.
var topicName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}$`)

// ConfigError says which field of a Config is wrong. It wraps ErrConfig.
type ConfigError struct {
	// Field names it as in Go, with the index of an element: "Rules[0].Mode".
	Field string
	// Reason is for a person.
	Reason string
}

// Error implements error.
func (e *ConfigError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrConfig, e.Field, e.Reason) }

// Unwrap gives ErrConfig.
func (e *ConfigError) Unwrap() error { return ErrConfig }

func badField(field, format string, args ...any) error {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// InForce returns the configuration that New works with: checked, and with
// every default and what follows from other fields (AdvertisedHost,
// BrokerPorts, of each listener) filled in. Logger, Meter, Dial and ListenFunc stay as they are.
// The error is a *ConfigError.
func (c Config) InForce() (Config, error) {
	err := c.fillIn()
	return c, err
}

// validate puts the configuration in force, with the seams of the process.
func (c *Config) validate() error {
	if err := c.fillIn(); err != nil {
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

func (c *Config) fillIn() error {
	if err := c.checkBootstrap(); err != nil {
		return err
	}
	if err := c.fillInListeners(); err != nil {
		return err
	}
	if err := c.checkRules(); err != nil {
		return err
	}
	if c.BrokerKind < AutoKind || c.BrokerKind > EmbeddedKfake {
		return badField("BrokerKind", "unknown kind %d", c.BrokerKind)
	}
	if err := c.Credentials.validate(); err != nil {
		return err
	}
	if c.ProbeTopic == "" {
		c.ProbeTopic = defaultProbeTopic
	}
	if !topicName.MatchString(c.ProbeTopic) {
		return badField("ProbeTopic", "%q is not the name of a topic", c.ProbeTopic)
	}
	if c.FenceID == 0 {
		c.FenceID = defaultFenceID
	}
	if c.FenceID < 0 {
		return badField("FenceID", "%d is negative", c.FenceID)
	}
	return c.defaultNumbers()
}

func (c *Config) checkBootstrap() error {
	if len(c.Bootstrap) == 0 {
		return badField("Bootstrap", "at least one host:port is needed")
	}
	for i, address := range c.Bootstrap {
		host, port, err := splitAddress(address)
		if err != nil || host == "" || port == 0 {
			return badField(fmt.Sprintf("Bootstrap[%d]", i), "%q is not host:port", address)
		}
	}
	return nil
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

// defaultNumbers replaces zeros by defaults and refuses negative values.
func (c *Config) defaultNumbers() error {
	const mebibyte = 1 << 20
	for _, f := range []struct {
		name    string
		value   *int
		initial int
	}{
		{"IdleViews", &c.IdleViews, 100_000},
		{"MaxProducers", &c.MaxProducers, 1024},
		{"IdleProducers", &c.IdleProducers, 250_000},
		{"MaxRuleTopics", &c.MaxRuleTopics, 100_000},
		{"MaxFrameBytes", &c.MaxFrameBytes, 100 * mebibyte},
		{"MaxDecompressedBytes", &c.MaxDecompressedBytes, 64 * mebibyte},
		{"MaxProducePartitions", &c.MaxProducePartitions, 16_384},
		{"MaxAddPartitionsBytes", &c.MaxAddPartitionsBytes, mebibyte},
		{"MaxTopics", &c.MaxTopics, 100_000},
		{"MaxUnknown", &c.MaxUnknown, 1024},
		{"MaxReadings", &c.MaxReadings, 32},
		{"OldReadsPerSecond", &c.OldReadsPerSecond, 100},
		{"MaxReadBackBytes", &c.MaxReadBackBytes, 8 * mebibyte},
		{"MaxControlBytes", &c.MaxControlBytes, 64 * mebibyte},
		{"MaxPendingRequests", &c.MaxPendingRequests, 1024},
		{"MaxConnections", &c.MaxConnections, 10_000},
		{"MetricTopics", &c.MetricTopics, 0},
		{"MaxConnectionsPerAddress", &c.MaxConnectionsPerAddress, 0},
		{"MaxBufferedBytes", &c.MaxBufferedBytes, 1024 * mebibyte},
		{"MaxRewrittenBytes", &c.MaxRewrittenBytes, 64 * mebibyte},
		{"MaxHeldBytes", &c.MaxHeldBytes, mebibyte},
	} {
		if *f.value < 0 {
			return badField(f.name, "%d is negative", *f.value)
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
		{"ProducerKeep", &c.ProducerKeep, 10 * time.Minute},
		{"AnswerMax", &c.AnswerMax, 2 * time.Minute},
		{"ControlTimeout", &c.ControlTimeout, 5 * time.Second},
		{"AssertedProducerExpiry", &c.AssertedProducerExpiry, 0},
		{"AssertedConnectionIdle", &c.AssertedConnectionIdle, 0},
		{"AssertedExpiryCheck", &c.AssertedExpiryCheck, 0},
		{"ClockSkew", &c.ClockSkew, 10 * time.Second},
		{"DialTimeout", &c.DialTimeout, 5 * time.Second},
		{"HandshakeTimeout", &c.HandshakeTimeout, 30 * time.Second},
		{"IdleTimeout", &c.IdleTimeout, 0},
		{"ArrivalTimeout", &c.ArrivalTimeout, 30 * time.Second},
		{"WriteTimeout", &c.WriteTimeout, 2 * time.Minute},
		{"LongestHold", &c.LongestHold, time.Minute},
		{"LookupTimeout", &c.LookupTimeout, 5 * time.Second},
		{"ReadingTimeout", &c.ReadingTimeout, 15 * time.Second},
		{"DrainDelay", &c.DrainDelay, 0},
		{"DrainTimeout", &c.DrainTimeout, 10 * time.Second},
	} {
		if *f.value < 0 {
			return badField(f.name, "%s is negative", *f.value)
		}
		if *f.value == 0 {
			*f.value = f.initial
		}
	}
	return nil
}
