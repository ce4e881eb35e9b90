package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
)

// settingFlags are the settings of a file that can be given as flags instead.
// A nil field was not given.
type settingFlags struct {
	Bootstrap      []string `help:"Addresses of brokers, host:port, with commas." placeholder:"HOST:PORT" group:"Settings, in place of a file"`
	Listen         *string  `help:"Address for clients to connect to first; default 127.0.0.1:9092." placeholder:"HOST:PORT" group:"Settings, in place of a file"`
	AdvertisedHost *string  `help:"Host name that clients are told; default: the host of --listen." placeholder:"HOST" group:"Settings, in place of a file"`
	BrokerPorts    *string  `help:"The broker with node id n is served on FIRST+n; default: the ports after --listen." placeholder:"FIRST-LAST" group:"Settings, in place of a file"`
	Require        []string `help:"Topics whose appends must be conditional, such as 'orders.*'; may be repeated." sep:"none" placeholder:"GLOB" group:"Settings, in place of a file"`
	BrokerKind     *string  `help:"kafka (default), or kfake for an embedded broker." placeholder:"KIND" group:"Settings, in place of a file"`
	MetricsListen  *string  `help:"Serve /metrics, /livez and /readyz here." placeholder:"HOST:PORT" group:"Settings, in place of a file"`

	FenceID                    *string `help:"Producer id of all proxies of the cluster; default 0x4f66667365740001." placeholder:"ID" group:"Fence and limits"`
	AssertProducerIDExpiration *string `name:"assert-producer-id-expiration" help:"The brokers' producer.id.expiration.ms on your word." placeholder:"TIME" group:"Fence and limits"`
	AssertConnectionsMaxIdle   *string `help:"The brokers' connections.max.idle.ms on your word." placeholder:"TIME" group:"Fence and limits"`
	ViewMaxAge                 *string `help:"Greatest age of what is known of a partition; default 60s." placeholder:"TIME" group:"Fence and limits"`
	AdmissionWait              *string `help:"Least wait before a queue's head reads the end anew; default 50ms." placeholder:"TIME" group:"Fence and limits"`
	MaxFrame                   *string `help:"Largest request; default 100MiB." placeholder:"SIZE" group:"Fence and limits"`
	MaxDecompressed            *string `help:"Largest batch; default 64MiB." placeholder:"SIZE" group:"Fence and limits"`
	MaxPendingRequests         *string `help:"Unanswered requests of a connection; default 1024." placeholder:"N" group:"Fence and limits"`
	MaxRewritten               *string `help:"Largest answer in which addresses are replaced; default 64MiB." placeholder:"SIZE" group:"Fence and limits"`
	MaxHeld                    *string `help:"Answers of a connection that wait for an earlier one; default 1MiB." placeholder:"SIZE" group:"Fence and limits"`
	MaxConnections             *string `help:"Client connections; default 10000." placeholder:"N" group:"Fence and limits"`
	DialTimeout                *string `help:"One attempt to connect to a broker; default 5s." placeholder:"TIME" group:"Fence and limits"`
	HandshakeTimeout           *string `help:"A new connection's first request; default 30s." placeholder:"TIME" group:"Fence and limits"`
	IdleTimeout                *string `help:"Close idle connections; default 0s: the brokers decide." placeholder:"TIME" group:"Fence and limits"`
	DrainTimeout               *string `help:"For requests in flight after SIGTERM; default 10s." placeholder:"TIME" group:"Fence and limits"`
}

// logFlags may be given beside a file, whose log section they override.
type logFlags struct {
	LogLevel  *string `help:"debug, info (default), warn or error." placeholder:"LEVEL"`
	LogFormat *string `help:"text (default) or json." placeholder:"FORMAT"`
}

// flagNames maps settings to flags where they are not named alike.
var flagNames = map[string]string{
	"rules":                                 "require",
	"brokers.kind":                          "broker-kind",
	"metrics.listen":                        "metrics-listen",
	"log.level":                             "log-level",
	"log.format":                            "log-format",
	"brokers.assert.producer_id_expiration": "assert-producer-id-expiration",
	"brokers.assert.connections_max_idle":   "assert-connections-max-idle",
}

// flagName gives the flag of a setting, as in "limits.max_frame".
func flagName(path string) string {
	path, _, _ = strings.Cut(path, "[")
	name, ok := flagNames[path]
	if !ok {
		name = strings.ReplaceAll(strings.TrimPrefix(path, "limits."), "_", "-")
	}
	return "--" + name
}

func optional(s *string) config.Value {
	if s == nil {
		return config.Value{}
	}
	return config.Text(*s)
}

// document puts flags into the form of a file.
func (f *settingFlags) document(log logFlags) *config.Document {
	d := &config.Document{
		Bootstrap:      config.Texts(f.Bootstrap...),
		Listen:         optional(f.Listen),
		AdvertisedHost: optional(f.AdvertisedHost),
		BrokerPorts:    config.Ports{Range: optional(f.BrokerPorts)},
		FenceID:        optional(f.FenceID),
		Brokers: config.Brokers{
			Kind: optional(f.BrokerKind),
			Assert: config.Assert{
				ProducerIDExpiration: optional(f.AssertProducerIDExpiration),
				ConnectionsMaxIdle:   optional(f.AssertConnectionsMaxIdle),
			},
		},
		ViewMaxAge:    optional(f.ViewMaxAge),
		AdmissionWait: optional(f.AdmissionWait),
		Limits: config.Limits{
			MaxFrame:           optional(f.MaxFrame),
			MaxDecompressed:    optional(f.MaxDecompressed),
			MaxPendingRequests: optional(f.MaxPendingRequests),
			MaxRewritten:       optional(f.MaxRewritten),
			MaxHeld:            optional(f.MaxHeld),
			MaxConnections:     optional(f.MaxConnections),
			DialTimeout:        optional(f.DialTimeout),
			HandshakeTimeout:   optional(f.HandshakeTimeout),
			IdleTimeout:        optional(f.IdleTimeout),
			DrainTimeout:       optional(f.DrainTimeout),
		},
		Log:     config.Log{Level: optional(log.LogLevel), Format: optional(log.LogFormat)},
		Metrics: config.Metrics{Listen: optional(f.MetricsListen)},
	}
	for _, glob := range f.Require {
		d.Rules = append(d.Rules, config.Rule{Topics: config.Text(glob), Mode: config.Text("require")})
	}
	return d
}

// resolve understands flags; problems name the flag.
func resolveFlags(d *config.Document) (*config.Settings, error) {
	settings, err := d.Resolve()
	var wrong *config.Error
	if errors.As(err, &wrong) {
		var lines []string
		for _, p := range wrong.Problems {
			lines = append(lines, flagName(p.Path)+": "+p.Message)
		}
		return nil, usage("%s", strings.Join(lines, "\n"))
	}
	return settings, err
}

// besideFile lists the flags that may accompany --config.
var besideFile = map[string]bool{"config": true, "log-level": true, "log-format": true, "unsafe": true}

// settings takes everything from the file, or everything from flags.
func (c *serveCmd) settings(parsed *kong.Context) (*config.Settings, error) {
	if c.Config == "" {
		return resolveFlags(c.document(c.logFlags))
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && !besideFile[p.Flag.Name] {
			return nil, usage("--%s cannot be given beside --config: settings come from the file or from flags, never from both. Put it into %s",
				p.Flag.Name, c.Config)
		}
	}
	settings, err := config.Load(c.Config)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	// The two flags that override are understood by the same rules.
	over, err := resolveFlags((&settingFlags{Bootstrap: []string{"any:1"}}).document(c.logFlags))
	if err != nil {
		return nil, err
	}
	if c.LogLevel != nil {
		settings.LogLevel = over.LogLevel
		settings.Notes = append(settings.Notes, fmt.Sprintf("--log-level %s overrides the file", *c.LogLevel))
	}
	if c.LogFormat != nil {
		settings.LogFormat = over.LogFormat
		settings.Notes = append(settings.Notes, fmt.Sprintf("--log-format %s overrides the file", *c.LogFormat))
	}
	return settings, nil
}
