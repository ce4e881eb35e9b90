package config

import (
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Document is the configuration as it is written, before any of it is
// understood. The zero Value of a field means: not given. The meaning of each
// setting is that of the field named beside it.
type Document struct {
	// Bootstrap is proxy.Config.Bootstrap.
	Bootstrap Values `yaml:"bootstrap"`
	// Listen is proxy.Config.Listen.
	Listen Value `yaml:"listen"`
	// AdvertisedHost is proxy.Config.AdvertisedHost.
	AdvertisedHost Value `yaml:"advertised_host"`
	// BrokerPorts is proxy.Config.BrokerPorts.
	BrokerPorts Ports `yaml:"broker_ports"`
	// NodePorts is proxy.Config.NodePorts.
	NodePorts map[int32]Value `yaml:"node_ports"`
	// Listeners are proxy.Config.Listeners, in the place of the four above.
	Listeners []Listener `yaml:"listeners"`
	// Rules are proxy.Config.Rules, the first match first.
	Rules []Rule `yaml:"rules"`
	// DefaultMode is proxy.Config.Default: off, observe, enforce or require.
	DefaultMode Value `yaml:"default_mode"`
	// FenceID is proxy.Config.FenceID, decimal or hexadecimal with 0x.
	FenceID Value `yaml:"fence_id"`
	// Brokers is what the brokers are.
	Brokers Brokers `yaml:"brokers"`
	// Upstream is how the proxy gets to them.
	Upstream Upstream `yaml:"upstream"`
	// ViewMaxAge is proxy.Config.ViewMaxAge, a length of time with its unit.
	ViewMaxAge Value `yaml:"view_max_age"`
	// AdmissionWait is proxy.Config.AdmissionWait, a length of time.
	AdmissionWait Value `yaml:"admission_wait"`
	// AnswerMax is proxy.Config.AnswerMax, a length of time.
	AnswerMax Value `yaml:"answer_max"`
	// ClockSkew is proxy.Config.ClockSkew, a length of time.
	ClockSkew Value `yaml:"clock_skew"`
	// Limits bounds what clients may make the proxy spend.
	Limits Limits `yaml:"limits"`
	// Log says what is logged.
	Log Log `yaml:"log"`
	// Metrics says where the admin endpoints are.
	Metrics Metrics `yaml:"metrics"`
}

// Brokers is what the brokers are, and the operator's word for what cannot be
// read from them.
type Brokers struct {
	// Kind is proxy.Config.BrokerKind: auto, kafka or kfake.
	Kind Value `yaml:"kind"`
	// ProbeTopic is proxy.Config.ProbeTopic.
	ProbeTopic Value `yaml:"probe_topic"`
	// Assert holds what the brokers do not tell.
	Assert Assert `yaml:"assert"`
}

// Assert holds broker settings on the operator's word, lengths of time.
type Assert struct {
	// ProducerIDExpiration is proxy.Config.AssertedProducerExpiry.
	ProducerIDExpiration Value `yaml:"producer_id_expiration"`
	// ProducerIDExpirationCheck is proxy.Config.AssertedExpiryCheck.
	ProducerIDExpirationCheck Value `yaml:"producer_id_expiration_check"`
	// ConnectionsMaxIdle is proxy.Config.AssertedConnectionIdle.
	ConnectionsMaxIdle Value `yaml:"connections_max_idle"`
}

// Limits bounds what clients may make the proxy spend. Sizes are in bytes or
// have a unit (KiB, MiB, GiB); times have their unit.
type Limits struct {
	// MaxFrame is proxy.Config.MaxFrameBytes, a size.
	MaxFrame Value `yaml:"max_frame"`
	// MaxDecompressed is proxy.Config.MaxDecompressedBytes, a size.
	MaxDecompressed Value `yaml:"max_decompressed"`
	// MaxProducePartitions is proxy.Config.MaxProducePartitions, a number.
	MaxProducePartitions Value `yaml:"max_produce_partitions"`
	// MaxAddPartitions is proxy.Config.MaxAddPartitionsBytes, a size.
	MaxAddPartitions Value `yaml:"max_add_partitions"`
	// MaxTopics is proxy.Config.MaxTopics, a number.
	MaxTopics Value `yaml:"max_topics"`
	// MaxUnknown is proxy.Config.MaxUnknown, a number.
	MaxUnknown Value `yaml:"max_unknown"`
	// MaxReadings is proxy.Config.MaxReadings, a number.
	MaxReadings Value `yaml:"max_readings"`
	// OldReadsPerSecond is proxy.Config.OldReadsPerSecond, a number.
	OldReadsPerSecond Value `yaml:"old_reads_per_second"`
	// MaxReadBack is proxy.Config.MaxReadBackBytes, a size.
	MaxReadBack Value `yaml:"max_read_back"`
	// MaxControlAnswer is proxy.Config.MaxControlBytes, a size.
	MaxControlAnswer Value `yaml:"max_control_answer"`
	// ControlTimeout is proxy.Config.ControlTimeout, a length of time.
	ControlTimeout Value `yaml:"control_timeout"`
	// MaxPendingRequests is proxy.Config.MaxPendingRequests, a number.
	MaxPendingRequests Value `yaml:"max_pending_requests"`
	// MaxRewritten is proxy.Config.MaxRewrittenBytes, a size.
	MaxRewritten Value `yaml:"max_rewritten"`
	// MaxHeld is proxy.Config.MaxHeldBytes, a size.
	MaxHeld Value `yaml:"max_held"`
	// MaxConnections is proxy.Config.MaxConnections, a number.
	MaxConnections Value `yaml:"max_connections"`
	// MaxConnectionsPerAddress is proxy.Config.MaxConnectionsPerAddress, a number.
	MaxConnectionsPerAddress Value `yaml:"max_connections_per_address"`
	// MaxBuffered is proxy.Config.MaxBufferedBytes, a size.
	MaxBuffered Value `yaml:"max_buffered"`
	// ArrivalTimeout is proxy.Config.ArrivalTimeout, a length of time.
	ArrivalTimeout Value `yaml:"arrival_timeout"`
	// WriteTimeout is proxy.Config.WriteTimeout, a length of time.
	WriteTimeout Value `yaml:"write_timeout"`
	// LongestHold is proxy.Config.LongestHold, a length of time.
	LongestHold Value `yaml:"longest_hold"`
	// LookupTimeout is proxy.Config.LookupTimeout, a length of time.
	LookupTimeout Value `yaml:"lookup_timeout"`
	// ReadingTimeout is proxy.Config.ReadingTimeout, a length of time.
	ReadingTimeout Value `yaml:"reading_timeout"`
	// DrainDelay is proxy.Config.DrainDelay, a length of time.
	DrainDelay Value `yaml:"drain_delay"`
	// DialTimeout is proxy.Config.DialTimeout, a length of time.
	DialTimeout Value `yaml:"dial_timeout"`
	// HandshakeTimeout is proxy.Config.HandshakeTimeout, a length of time.
	HandshakeTimeout Value `yaml:"handshake_timeout"`
	// IdleTimeout is proxy.Config.IdleTimeout, a length of time.
	IdleTimeout Value `yaml:"idle_timeout"`
	// DrainTimeout is proxy.Config.DrainTimeout, a length of time.
	DrainTimeout Value `yaml:"drain_timeout"`
	// IdleViews is proxy.Config.IdleViews, a number.
	IdleViews Value `yaml:"idle_views"`
	// ProducerKeep is proxy.Config.ProducerKeep, a length of time.
	ProducerKeep Value `yaml:"producer_keep"`
	// MaxProducers is proxy.Config.MaxProducers, a number.
	MaxProducers Value `yaml:"max_producers"`
	// IdleProducers is proxy.Config.IdleProducers, a number.
	IdleProducers Value `yaml:"idle_producers"`
	// MaxRuleTopics is proxy.Config.MaxRuleTopics, a number.
	MaxRuleTopics Value `yaml:"max_rule_topics"`
}

// Log says what is logged and in what form.
type Log struct {
	// Level is Settings.LogLevel: debug, info, warn or error.
	Level Value `yaml:"level"`
	// Format is Settings.LogFormat: text or json.
	Format Value `yaml:"format"`
}

// Metrics says where the admin endpoints are served.
type Metrics struct {
	// Listen is Settings.MetricsListen, host:port.
	Listen Value `yaml:"listen"`
	// Pprof is Settings.Pprof: true or false.
	Pprof Value `yaml:"pprof"`
	// PerTopic has proxy.Config.MetricTopics be MaxTopics, else 0: true or false.
	PerTopic Value `yaml:"per_topic"`
	// MaxTopics is how many topics have series of their own then, a number.
	MaxTopics Value `yaml:"max_topics"`
}

// Value is a leaf of a Document: its text and, when it came from a file, where
// it stands. The zero Value is not given; so is a key without a value.
type Value struct {
	text  string
	given bool
	at    *token.Token
}

// Text is a leaf that comes from elsewhere than a file. An empty text counts
// as given.
func Text(s string) Value { return Value{text: s, given: true} }

// String is the text as it was given.
func (v Value) String() string { return v.text }

// UnmarshalYAML takes any single value as it is written.
func (v *Value) UnmarshalYAML(n ast.Node) error {
	at := n.GetToken()
	switch n := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.StringNode:
		*v = Value{text: n.Value, given: true, at: at}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		*v = Value{text: at.Value, given: true, at: at}
	default:
		return &yaml.SyntaxError{Message: "a single value belongs here", Token: at}
	}
	return nil
}

// Values is a list of leaves, written as a list or as one text with commas.
type Values []Value

// Texts is a list that comes from elsewhere than a file.
func Texts(ss ...string) Values {
	var vs Values
	for _, s := range ss {
		for part := range strings.SplitSeq(s, ",") {
			vs = append(vs, Text(strings.TrimSpace(part)))
		}
	}
	return vs
}

// UnmarshalYAML takes a list, or one text with commas.
func (vs *Values) UnmarshalYAML(n ast.Node) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		var v Value
		if err := v.UnmarshalYAML(n); err != nil {
			return err
		}
		if !v.given {
			return nil
		}
		for part := range strings.SplitSeq(v.text, ",") {
			*vs = append(*vs, Value{text: strings.TrimSpace(part), given: true, at: v.at})
		}
		return nil
	}
	for _, item := range list.Values {
		var v Value
		if err := v.UnmarshalYAML(item); err != nil {
			return err
		}
		if !v.given {
			v = Value{given: true, at: item.GetToken()}
		}
		*vs = append(*vs, v)
	}
	return nil
}

// Ports is a range of ports: "FIRST-LAST", or the keys first and last.
type Ports struct {
	// Range is the one text.
	Range Value
	// First and Last are the keys, both inclusive.
	First, Last Value
}

// UnmarshalYAML takes either form.
func (p *Ports) UnmarshalYAML(n ast.Node) error {
	if n.Type() != ast.MappingType {
		return p.Range.UnmarshalYAML(n)
	}
	var keys struct {
		First Value `yaml:"first"`
		Last  Value `yaml:"last"`
	}
	if err := yaml.NodeToValue(n, &keys, yaml.Strict()); err != nil {
		return err
	}
	p.First, p.Last = keys.First, keys.Last
	return nil
}
