package config

import (
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Document is the configuration as it is written, before any of it is
// understood. The zero Value of a field means: not given.
type Document struct {
	Bootstrap      Values          `yaml:"bootstrap"`
	Listen         Value           `yaml:"listen"`
	AdvertisedHost Value           `yaml:"advertised_host"`
	BrokerPorts    Ports           `yaml:"broker_ports"`
	NodePorts      map[int32]Value `yaml:"node_ports"`
	Rules          []Rule          `yaml:"rules"`
	DefaultMode    Value           `yaml:"default_mode"`
	FenceID        Value           `yaml:"fence_id"`
	Brokers        Brokers         `yaml:"brokers"`
	ViewMaxAge     Value           `yaml:"view_max_age"`
	AdmissionWait  Value           `yaml:"admission_wait"`
	ClockSkew      Value           `yaml:"clock_skew"`
	Limits         Limits          `yaml:"limits"`
	Log            Log             `yaml:"log"`
	Metrics        Metrics         `yaml:"metrics"`
}

// Rule is one entry of rules.
type Rule struct {
	Topics Value `yaml:"topics"`
	Mode   Value `yaml:"mode"`
}

// Brokers is what the brokers are, and the operator's word for what cannot be
// read from them.
type Brokers struct {
	Kind   Value  `yaml:"kind"`
	Assert Assert `yaml:"assert"`
}

// Assert holds broker settings on the operator's word.
type Assert struct {
	ProducerIDExpiration Value `yaml:"producer_id_expiration"`
	ConnectionsMaxIdle   Value `yaml:"connections_max_idle"`
}

// Limits bounds what clients may make the proxy spend.
type Limits struct {
	MaxFrame           Value `yaml:"max_frame"`
	MaxDecompressed    Value `yaml:"max_decompressed"`
	MaxPendingRequests Value `yaml:"max_pending_requests"`
	MaxRewritten       Value `yaml:"max_rewritten"`
	MaxHeld            Value `yaml:"max_held"`
	MaxConnections     Value `yaml:"max_connections"`
	DialTimeout        Value `yaml:"dial_timeout"`
	HandshakeTimeout   Value `yaml:"handshake_timeout"`
	IdleTimeout        Value `yaml:"idle_timeout"`
	DrainTimeout       Value `yaml:"drain_timeout"`
	IdleViews          Value `yaml:"idle_views"`
}

// Log says what is logged and in what form.
type Log struct {
	Level  Value `yaml:"level"`
	Format Value `yaml:"format"`
}

// Metrics says where the admin endpoints are served.
type Metrics struct {
	Listen Value `yaml:"listen"`
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
	Range       Value
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
