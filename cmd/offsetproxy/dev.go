package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// embeddedBrokers is the size of the embedded cluster of dev and demo.
const embeddedBrokers = 3

type devCmd struct {
	Listen     string `help:"Address of the proxy; its brokers are on the ports that follow; default ${default}." default:"127.0.0.1:9092" placeholder:"HOST:PORT"`
	Topic      string `help:"Topic to create, whose appends must be conditional; default ${default}." default:"events" placeholder:"NAME"`
	Partitions int32  `help:"Its partitions." default:"3"`
	Admin      string `help:"Address of the status page and metrics; empty: none." default:"127.0.0.1:0" placeholder:"HOST:PORT"`
	logFlags   `set:"log_level=warn"`
}

// Help adds to the command's help.
func (devCmd) Help() string {
	return `The embedded broker keeps everything in memory and forgets it at the end. It is
not Kafka: what holds on it is no proof for a real cluster. End it with Ctrl-C.

Example:
    offsetproxy dev --listen 127.0.0.1:19092`
}

// Run serves until the context ends.
func (c *devCmd) Run(env *environment) error {
	ctx, stop := endOnHangup(env.ctx)
	defer stop()
	env.ctx = ctx
	if c.Partitions < 1 {
		return usage("--partitions %d: a topic has at least 1", c.Partitions)
	}
	cluster, err := embedded.Start(embedded.Config{
		Brokers: embeddedBrokers,
		Topics:  map[string]int32{c.Topic: c.Partitions},
	})
	if err != nil {
		return err
	}
	defer cluster.Close()
	if c.LogLevel == nil {
		c.LogLevel = new("warn")
	}
	kind := "kfake"
	flags := settingFlags{Bootstrap: cluster.Addrs(), Listen: &c.Listen, BrokerKind: &kind}
	document := flags.document(c.logFlags)
	document.Rules = []config.Rule{{Topics: config.Text(c.Topic), Mode: config.Text("require")}}
	settings, err := resolveFlags(document)
	if err != nil {
		return err
	}
	settings.Proxy.Logger = newLogger(env.stderr, settings.LogLevel, settings.LogFormat)
	told, err := startTelemetry(env.ctx, c.Admin != "", settings.Proxy.Logger)
	if err != nil {
		return err
	}
	defer told.close()
	settings.Proxy.Meter, settings.Proxy.Tracing = told.meter, told.tracing
	var admin *adminServer
	if c.Admin != "" {
		if admin, err = startAdmin(c.Admin, false, told.registry, settings.Proxy.Logger); err != nil {
			return err
		}
		admin.openStatusPage(statusSource{}, settings.Proxy.Logger)
	}
	return errors.Join(c.serve(env, settings.Proxy, cluster, admin, told), admin.close())
}

// serve runs the proxy until the context ends.
func (c *devCmd) serve(env *environment, cfg proxy.Config, cluster *embedded.Cluster, admin *adminServer, told *telemetry) error {
	p, err := startProxy(env.ctx, cfg, admin, told)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	if err != nil {
		return err
	}
	c.welcome(env.stdout, p, cluster, admin)
	return p.wait(env.ctx)
}

func (c *devCmd) welcome(w io.Writer, p *runningProxy, cluster *embedded.Cluster, admin *adminServer) {
	fmt.Fprintf(w, "proxy     %s, the bootstrap server for any Kafka client\n", p.Addr())
	addrs := p.BrokerAddrs()
	for _, node := range slices.Sorted(maps.Keys(addrs)) {
		fmt.Fprintf(w, "          %s, broker %d through the proxy\n", addrs[node], node)
	}
	for _, addr := range cluster.Addrs() {
		fmt.Fprintf(w, "embedded  %s, around the proxy: to look at, not to write to\n", addr)
	}
	if admin != nil {
		fmt.Fprintf(w, "status    http://%s/, what goes on, live\n", admin.addr())
	}
	fmt.Fprintf(w, "topic     %s, %d partitions, only conditional appends\n\n", c.Topic, c.Partitions)
	at := fmt.Sprintf("--bootstrap %s --topic %s", p.Addr(), quote(c.Topic))
	fmt.Fprintf(w, `Try, in another terminal:

    offsetproxy append %[1]s --expect 0 first
    offsetproxy append %[1]s --expect 0 second     (refused: offset 0 is taken)
    offsetproxy next   %[1]s

Ctrl-C ends it.
`, at)
}
