package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/embedded"
	"github.com/offsetproxy/offsetproxy/internal/race"
	"github.com/offsetproxy/offsetproxy/proxy"
)

const (
	demoProxies     = 2
	demoReadTimeout = 2 * time.Minute
)

type demoCmd struct {
	outputFlag
	Bootstrap []string      `help:"Addresses of a real cluster, with commas; default: an embedded broker." placeholder:"HOST:PORT"`
	Duration  time.Duration `help:"How long the writers race." default:"5s"`
	Writers   int           `help:"How many race, through the proxies in turn." default:"4"`
	Unsafe    bool          `help:"Proxies check only their cache: shows what the fence is for."`
	clientFlags
	LogLevel string `help:"Of the proxies' logs on standard error: debug, info, warn or error; default ${default}." enum:"debug,info,warn,error" default:"error" placeholder:"LEVEL"`
}

// Help adds to the command's help.
func (demoCmd) Help() string {
	return `Starts two proxies before one cluster and lets writers race conditional appends
for the places of one partition, each attempt sent once. Then the log is read
from the brokers and compared with what each writer was told: every success at
the offset it was promised, no refused record in the log, no value twice. On a
real cluster a topic is created for it and deleted at the end; flags of TLS and
login are for its brokers.

Exit status: 0 only if the check holds. With --unsafe the proxies check their
cache and forward; two of them then acknowledge appends at other offsets than
promised, and the demo ends with 1, naming them.

Examples:
    offsetproxy demo
    offsetproxy demo --bootstrap kafka-1:9092 --duration 30s --writers 8
    offsetproxy demo --unsafe`
}

// Run races and checks.
func (c *demoCmd) Run(env *environment) error {
	ctx, stop := endOnHangup(env.ctx)
	defer stop()
	env.ctx = ctx
	switch {
	case c.Writers < 1 || c.Writers > 1000:
		return usage("--writers %d: from 1 to 1000 can race", c.Writers)
	case c.Duration <= 0:
		return usage("--duration %v: must be more than 0", c.Duration)
	}
	report := &demoReport{Unsafe: c.Unsafe, Writers: c.Writers, Proxies: demoProxies, duration: c.Duration}
	err := c.race(env, report)
	if err != nil {
		if env.ctx.Err() != nil {
			return errors.New("interrupted before the log was checked")
		}
		return err
	}
	if c.Output == outputJSON {
		err = printJSON(env.stdout, report.forPrograms())
	} else {
		err = report.write(env.stdout)
	}
	if err == nil && len(report.result.Violations) > 0 {
		err = &exitError{code: exitFailed}
	}
	return err
}

// race fills the report.
func (c *demoCmd) race(env *environment, report *demoReport) (err error) {
	bootstrap, kind := c.Bootstrap, proxy.ApacheKafka
	way, err := c.way()
	if err != nil {
		return err
	}
	report.Cluster = "the cluster at " + strings.Join(bootstrap, ",")
	if len(bootstrap) == 0 {
		cluster, err := embedded.Start(embedded.Config{Brokers: embeddedBrokers})
		if err != nil {
			return err
		}
		defer cluster.Close()
		bootstrap, kind = cluster.Addrs(), proxy.EmbeddedKfake
		report.Cluster = fmt.Sprintf("an embedded cluster of %d brokers", embeddedBrokers)
	}
	topic, err := createDemoTopic(env.ctx, way.loggedIn(), bootstrap)
	if err != nil {
		return err
	}
	report.Topic = topic.name
	// The topic goes even if the demo was interrupted.
	defer func() { err = errors.Join(err, topic.delete(context.WithoutCancel(env.ctx))) }()

	ctx, cancel := context.WithCancel(env.ctx)
	var proxies []*runningProxy
	defer func() {
		cancel()
		for _, p := range proxies {
			err = errors.Join(err, p.wait(ctx))
		}
	}()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	logger := newLogger(env.stderr, level, config.FormatText)
	var addrs [][]string
	for i := range demoProxies {
		p, err := startProxy(ctx, proxy.Config{
			Bootstrap:  bootstrap,
			Listen:     "127.0.0.1:0",
			Rules:      []proxy.Rule{{Topics: topic.name, Mode: proxy.ModeRequire}},
			BrokerKind: kind,
			Unsafe:     c.Unsafe,
			// The writers need no login: the proxies listen for this machine alone.
			Credentials: way.credentials(),
			Dial:        way.dial,
			Logger:      logger.With("proxy", i+1),
		})
		if err != nil {
			return err
		}
		proxies = append(proxies, p)
		addrs = append(addrs, []string{p.Addr()})
	}
	attempts, err := race.Run(ctx, race.Config{
		Proxies:  addrs,
		Topic:    topic.name,
		Writers:  c.Writers,
		Duration: c.Duration,
		Value:    topic.name,
	})
	if err != nil {
		return err
	}
	readCtx, stop := context.WithTimeout(ctx, demoReadTimeout)
	defer stop()
	log, err := race.ReadLog(readCtx, bootstrap, topic.name, 0, kgo.Dialer(way.loggedIn()))
	if err != nil {
		return err
	}
	report.result = race.Check(attempts, log)
	return nil
}
