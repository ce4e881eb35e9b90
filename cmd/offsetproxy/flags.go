package main

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/version"
)

// settingFlags are the settings of a file that can be given as flags instead:
// all but node_ports and listeners. A nil field was not given. ${…} in a help text is a default, see helpVars.
type settingFlags struct {
	Bootstrap        []string `help:"Addresses of brokers, host:port, with commas." placeholder:"HOST:PORT" group:"settings"`
	Listen           *string  `help:"Address for clients to connect to first; default ${listen}." placeholder:"HOST:PORT" group:"settings"`
	AdvertisedHost   *string  `help:"Host name that clients are told; default: the host of --listen." placeholder:"HOST" group:"settings"`
	BrokerPorts      *string  `help:"The broker with node id n is served on FIRST+n; default: the ports after --listen." placeholder:"FIRST-LAST" group:"settings"`
	DefaultMode      *string  `help:"Mode of topics without a rule: off, observe, enforce or require; default ${default_mode}." placeholder:"MODE" group:"settings"`
	BrokerKind       *string  `help:"auto, which probes each broker, or on your word kafka or kfake; default ${broker_kind}." placeholder:"KIND" group:"settings"`
	ProbeTopic       *string  `help:"Topic on which brokers are probed; default ${probe_topic}." placeholder:"TOPIC" group:"settings"`
	TLS              bool     `name:"tls" help:"Speak TLS to the brokers; so do the next flags." group:"settings"`
	TLSCAFile        *string  `name:"tls-ca-file" help:"PEM file of the authorities of the brokers' certificates; default: the system's." placeholder:"FILE" group:"settings"`
	TLSCertFile      *string  `name:"tls-cert-file" help:"PEM file of the certificate that brokers are shown." placeholder:"FILE" group:"settings"`
	TLSKeyFile       *string  `name:"tls-key-file" help:"PEM file of its private key." placeholder:"FILE" group:"settings"`
	TLSServerName    *string  `name:"tls-server-name" help:"Name that the brokers' certificates have; default: the host that is dialled." placeholder:"HOST" group:"settings"`
	TLSMinVersion    *string  `name:"tls-min-version" help:"Least version of TLS, 1.2 or 1.3; default 1.2." placeholder:"VERSION" group:"settings"`
	SASLMechanism    *string  `name:"sasl-mechanism" help:"How the proxy itself logs in to the brokers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER." placeholder:"NAME" group:"settings"`
	SASLUser         *string  `name:"sasl-user" help:"The user that the proxy itself logs in as." placeholder:"USER" group:"settings"`
	SASLPasswordFile *string  `name:"sasl-password-file" help:"File with that user's password." placeholder:"FILE" group:"settings"`
	SASLPasswordEnv  *string  `name:"sasl-password-env" help:"Environment variable with that user's password." placeholder:"NAME" group:"settings"`
	SASLTokenFile    *string  `name:"sasl-token-file" help:"File with the token of OAUTHBEARER, read for each login." placeholder:"FILE" group:"settings"`
	SASLForClients   bool     `name:"sasl-for-clients" help:"Log in for clients too, so that they need no credentials." group:"settings"`
	MetricsListen    *string  `help:"Serve a status page, /metrics, /livez and /readyz here." placeholder:"HOST:PORT" group:"settings"`
	Pprof            bool     `help:"Serve profiles of the process there too, under /debug/pprof." group:"settings"`
	MetricsPerTopic  bool     `help:"Count what becomes of appends by topic too." group:"settings"`
	MetricsMaxTopics *string  `help:"… for so many topics; all beyond are counted together; default ${metrics_max_topics}." placeholder:"N" group:"settings"`

	Require []string `help:"Conditional appends are fenced, all others refused." sep:"none" placeholder:"RULE" group:"rules"`
	Enforce []string `help:"All appends are fenced; those without a condition go to the end." sep:"none" placeholder:"RULE" group:"rules"`
	Observe []string `help:"Forwarded untouched, and counted what the fence would have said." sep:"none" placeholder:"RULE" group:"rules"`
	Off     []string `help:"Forwarded untouched." sep:"none" placeholder:"RULE" group:"rules"`

	FenceID                         *string `help:"Producer id of all proxies of the cluster; default ${fence_id}." placeholder:"ID" group:"fence"`
	ViewMaxAge                      *string `help:"Greatest age of what is known of a partition; default ${view_max_age}." placeholder:"TIME" group:"fence"`
	AdmissionWait                   *string `help:"Least wait before a queue's head reads the end anew; default ${admission_wait}." placeholder:"TIME" group:"fence"`
	AnswerMax                       *string `help:"Longest wait for the broker's answer to an append; default ${answer_max}." placeholder:"TIME" group:"fence"`
	ClockSkew                       *string `help:"How far clocks may be apart; default ${clock_skew}." placeholder:"TIME" group:"fence"`
	IdleViews                       *string `help:"Partitions remembered while nothing is in flight; default ${idle_views}." placeholder:"N" group:"fence"`
	AssertProducerIDExpiration      *string `name:"assert-producer-id-expiration" help:"The brokers' producer.id.expiration.ms on your word." placeholder:"TIME" group:"fence"`
	AssertProducerIDExpirationCheck *string `name:"assert-producer-id-expiration-check" help:"The brokers' producer.id.expiration.check.interval.ms on your word." placeholder:"TIME" group:"fence"`
	AssertConnectionsMaxIdle        *string `help:"The brokers' connections.max.idle.ms on your word." placeholder:"TIME" group:"fence"`

	MaxFrame                 *string `help:"Largest request; default ${max_frame}." placeholder:"SIZE" group:"limits"`
	MaxDecompressed          *string `help:"Largest batch under a rule; default ${max_decompressed}." placeholder:"SIZE" group:"limits"`
	MaxProducePartitions     *string `help:"Partitions of one Produce, if some are under a rule; default ${max_produce_partitions}." placeholder:"N" group:"limits"`
	MaxPendingRequests       *string `help:"Unanswered requests of a connection; default ${max_pending_requests}." placeholder:"N" group:"limits"`
	MaxRewritten             *string `help:"Largest answer in which addresses are replaced; default ${max_rewritten}." placeholder:"SIZE" group:"limits"`
	MaxHeld                  *string `help:"Answers of a connection that wait for an earlier one; default ${max_held}." placeholder:"SIZE" group:"limits"`
	MaxConnections           *string `help:"Client connections; default ${max_connections}." placeholder:"N" group:"limits"`
	MaxConnectionsPerAddress *string `help:"Client connections of one address, or of one /64 network of IPv6; default ${max_connections_per_address}: no limit of its own." placeholder:"N" group:"limits"`
	MaxBuffered              *string `help:"Memory for frames of all connections together; default ${max_buffered}." placeholder:"SIZE" group:"limits"`
	ArrivalTimeout           *string `help:"For a request to arrive whole while others wait for its memory; default ${arrival_timeout}." placeholder:"TIME" group:"limits"`
	WriteTimeout             *string `help:"Close the connection of a client that takes nothing for so long; default ${write_timeout}." placeholder:"TIME" group:"limits"`
	LongestHold              *string `help:"Longest wait of an append for its turn; default ${longest_hold}." placeholder:"TIME" group:"limits"`
	LookupTimeout            *string `help:"What a request waits for until its topics are known; default ${lookup_timeout}." placeholder:"TIME" group:"limits"`
	ReadingTimeout           *string `help:"One reading of a partition's end or of records; default ${reading_timeout}." placeholder:"TIME" group:"limits"`
	DialTimeout              *string `help:"One attempt to connect to a broker; default ${dial_timeout}." placeholder:"TIME" group:"limits"`
	HandshakeTimeout         *string `help:"A new connection's first request; default ${handshake_timeout}." placeholder:"TIME" group:"limits"`
	IdleTimeout              *string `help:"Close idle connections; default ${idle_timeout}: the brokers decide." placeholder:"TIME" group:"limits"`
	DrainDelay               *string `help:"Time between not ready and no new connections, after SIGTERM; default ${drain_delay}." placeholder:"TIME" group:"limits"`
	DrainTimeout             *string `help:"For requests in flight after SIGTERM; default ${drain_timeout}." placeholder:"TIME" group:"limits"`
	ProducerKeep             *string `help:"How long idempotent clients' last batches are remembered; default ${producer_keep}." placeholder:"TIME" group:"limits"`
	MaxProducers             *string `help:"Producer ids remembered in a partition; default ${max_producers}." placeholder:"N" group:"limits"`
	IdleProducers            *string `help:"Producer ids remembered in all idle partitions; default ${idle_producers}." placeholder:"N" group:"limits"`
	MaxRuleTopics            *string `help:"Topics whose rule is remembered; default ${max_rule_topics}." placeholder:"N" group:"limits"`
	MaxTopics                *string `help:"Topics under a rule that are remembered; default ${max_topics}." placeholder:"N" group:"limits"`
	MaxUnknown               *string `help:"Appends of unknown outcome in a partition; default ${max_unknown}." placeholder:"N" group:"limits"`
	MaxAddPartitions         *string `help:"A request that names a transaction's partitions; default ${max_add_partitions}." placeholder:"SIZE" group:"limits"`
	MaxReadings              *string `help:"The proxy's own readings at one broker at once; default ${max_readings}." placeholder:"N" group:"limits"`
	OldReadsPerSecond        *string `help:"Appends of a connection for offsets far back, each of which is read; default ${old_reads_per_second}." placeholder:"N" group:"limits"`
	MaxReadBack              *string `help:"One round of reading records back; default ${max_read_back}." placeholder:"SIZE" group:"limits"`
	MaxControlAnswer         *string `help:"Largest answer to the proxy itself; default ${max_control_answer}." placeholder:"SIZE" group:"limits"`
	ControlTimeout           *string `help:"One request of the proxy's own; default ${control_timeout}." placeholder:"TIME" group:"limits"`
}

// flagGroups are the headings of --help.
var flagGroups = []kong.Group{
	{Key: "settings", Title: "Settings, in place of a file:"},
	{Key: "client", Title: "TLS and login, if where it connects to asks for them:"},
	{Key: "rules", Title: "Rules by topic; the first that matches decides, in the order given:", Description: ruleHelp},
	{Key: "fence", Title: "Settings of the fence:"},
	{Key: "limits", Title: "Settings that bound what clients can make the proxy spend:"},
}

// ruleHelp says what the value of a rule's flag is.
const ruleHelp = "A RULE is a glob such as 'orders.*', or topics_regexp=EXPRESSION, and then, separated by spaces, the options " +
	"of rules in the file: 'orders.* error_code=44 replay=content'. The flags may be repeated."

// helpVars are the defaults that help texts name.
func helpVars() kong.Vars {
	e := config.Defaults().Effective()
	vars := kong.Vars{
		"version": version.Current().String(),
		"listen":  e.Listen, "default_mode": e.DefaultMode, "broker_kind": e.BrokerKind, "probe_topic": e.ProbeTopic, "fence_id": e.FenceID,
		"view_max_age": e.ViewMaxAge, "admission_wait": e.AdmissionWait, "clock_skew": e.ClockSkew, "answer_max": e.AnswerMax,
		"log_level": e.LogLevel, "log_format": string(e.LogFormat), "metrics_max_topics": strconv.Itoa(config.DefaultMetricTopics),
	}
	maps.Copy(vars, e.Limits)
	return vars
}

// logFlags may be given beside a file, whose log section they override.
type logFlags struct {
	LogLevel  *string `help:"debug, info, warn or error; default ${log_level}." placeholder:"LEVEL"`
	LogFormat *string `help:"text or json; default ${log_format}." placeholder:"FORMAT"`
}

// flagNames maps settings to flags where they are not named alike.
var flagNames = map[string]string{
	"rules":                "require", // or another, see ruleFlagName
	"brokers.kind":         "broker-kind",
	"brokers.probe_topic":  "probe-topic",
	"metrics.listen":       "metrics-listen",
	"metrics.pprof":        "pprof",
	"metrics.per_topic":    "metrics-per-topic",
	"metrics.max_topics":   "metrics-max-topics",
	"log.level":            "log-level",
	"upstream.tls.enabled": "tls",
	"log.format":           "log-format",
}

// flagName gives the flag of a setting, as in "limits.max_frame".
func flagName(path string) string {
	path, _, _ = strings.Cut(path, "[")
	name, ok := flagNames[path]
	if assertion, is := strings.CutPrefix(path, "brokers.assert."); is {
		name, ok = "assert-"+strings.ReplaceAll(assertion, "_", "-"), true
	}
	if login, is := strings.CutPrefix(path, "upstream."); is && !ok {
		name, ok = strings.NewReplacer("_", "-", ".", "-").Replace(login), true
	}
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
		DefaultMode:    optional(f.DefaultMode),
		FenceID:        optional(f.FenceID),
		Brokers: config.Brokers{
			Kind: optional(f.BrokerKind), ProbeTopic: optional(f.ProbeTopic),
			Assert: config.Assert{
				ProducerIDExpiration:      optional(f.AssertProducerIDExpiration),
				ProducerIDExpirationCheck: optional(f.AssertProducerIDExpirationCheck),
				ConnectionsMaxIdle:        optional(f.AssertConnectionsMaxIdle),
			},
		},
		Upstream: config.Upstream{SASL: config.SASL{
			Mechanism: optional(f.SASLMechanism), User: optional(f.SASLUser),
			PasswordFile: optional(f.SASLPasswordFile), PasswordEnv: optional(f.SASLPasswordEnv), TokenFile: optional(f.SASLTokenFile),
		}, TLS: config.UpstreamTLS{
			CAFile: optional(f.TLSCAFile), CertFile: optional(f.TLSCertFile), KeyFile: optional(f.TLSKeyFile),
			ServerName: optional(f.TLSServerName), MinVersion: optional(f.TLSMinVersion),
		}},
		ViewMaxAge:    optional(f.ViewMaxAge),
		AdmissionWait: optional(f.AdmissionWait),
		AnswerMax:     optional(f.AnswerMax),
		ClockSkew:     optional(f.ClockSkew),
		Limits: config.Limits{
			MaxFrame:                 optional(f.MaxFrame),
			MaxDecompressed:          optional(f.MaxDecompressed),
			MaxProducePartitions:     optional(f.MaxProducePartitions),
			MaxPendingRequests:       optional(f.MaxPendingRequests),
			MaxRewritten:             optional(f.MaxRewritten),
			MaxHeld:                  optional(f.MaxHeld),
			MaxConnections:           optional(f.MaxConnections),
			MaxConnectionsPerAddress: optional(f.MaxConnectionsPerAddress),
			MaxBuffered:              optional(f.MaxBuffered),
			ArrivalTimeout:           optional(f.ArrivalTimeout),
			WriteTimeout:             optional(f.WriteTimeout),
			LongestHold:              optional(f.LongestHold),
			LookupTimeout:            optional(f.LookupTimeout),
			ReadingTimeout:           optional(f.ReadingTimeout),
			DrainDelay:               optional(f.DrainDelay),
			DialTimeout:              optional(f.DialTimeout),
			HandshakeTimeout:         optional(f.HandshakeTimeout),
			IdleTimeout:              optional(f.IdleTimeout),
			DrainTimeout:             optional(f.DrainTimeout),
			IdleViews:                optional(f.IdleViews),
			ProducerKeep:             optional(f.ProducerKeep),
			MaxProducers:             optional(f.MaxProducers),
			IdleProducers:            optional(f.IdleProducers),
			MaxRuleTopics:            optional(f.MaxRuleTopics),
			MaxTopics:                optional(f.MaxTopics),
			MaxUnknown:               optional(f.MaxUnknown),
			MaxAddPartitions:         optional(f.MaxAddPartitions),
			MaxReadings:              optional(f.MaxReadings),
			OldReadsPerSecond:        optional(f.OldReadsPerSecond),
			MaxReadBack:              optional(f.MaxReadBack),
			MaxControlAnswer:         optional(f.MaxControlAnswer),
			ControlTimeout:           optional(f.ControlTimeout),
		},
		Log:     config.Log{Level: optional(log.LogLevel), Format: optional(log.LogFormat)},
		Metrics: config.Metrics{Listen: optional(f.MetricsListen), MaxTopics: optional(f.MetricsMaxTopics)},
	}
	if f.TLS {
		d.Upstream.TLS.Enabled = config.Text("true")
	}
	if f.SASLForClients {
		d.Upstream.SASL.ForClients = config.Text("true")
	}
	if f.Pprof {
		d.Metrics.Pprof = config.Text("true")
	}
	if f.MetricsPerTopic {
		d.Metrics.PerTopic = config.Text("true")
	}
	return d
}

// resolveFlags understands flags; problems name the flag.
func resolveFlags(d *config.Document) (*config.Settings, error) {
	settings, err := d.Resolve()
	var wrong *config.Error
	if errors.As(err, &wrong) {
		var lines []string
		for _, p := range wrong.Problems {
			lines = append(lines, ruleFlagName(d, p.Path)+": "+p.Message)
		}
		return nil, usage("%s", strings.Join(lines, "\n"))
	}
	return settings, err
}

// besideFile lists the flags that may accompany --config.
var besideFile = map[string]bool{"config": true, "log-level": true, "log-format": true, "no-watch": true, "unsafe": true}

// settings takes everything from the file, or everything from flags.
func (c *serveCmd) settings(parsed *kong.Context) (*config.Settings, error) {
	if c.Config == "" {
		return c.resolveAll(parsed)
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && !besideFile[p.Flag.Name] {
			return nil, usage("--%s cannot be given beside --config: settings come from the file or from flags, never from both. Put it into %s",
				p.Flag.Name, c.Config)
		}
	}
	return c.fromFile()
}

// fromFile takes the settings from the file.
func (c *serveCmd) fromFile() (*config.Settings, error) {
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
