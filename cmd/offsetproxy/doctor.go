package main

import (
	"context"
	"time"

	"github.com/alecthomas/kong"

	"github.com/offsetproxy/offsetproxy/internal/doctor"
)

// exitWarnings is for a doctor that has warnings, and no errors.
const exitWarnings = 3

type doctorCmd struct {
	outputFlag
	Config string `help:"Take the settings from FILE, as serve does." placeholder:"FILE"`
	settingFlags
	Proxies       []string      `help:"Admin addresses of running proxies, URL or host:port, with commas: whether they agree." placeholder:"URL"`
	Writers       []string      `help:"Principals of clients that come through the proxies, as User:name, with commas." placeholder:"PRINCIPAL"`
	ClosedNetwork bool          `help:"On your word: the network lets the proxies alone reach the brokers."`
	Probe         bool          `help:"Send a batch twice to the probe topic, to see how each broker marks duplicates."`
	Verbose       bool          `help:"Tell what is good too." short:"v"`
	Timeout       time.Duration `help:"For all questions together; each has a sixth of it." default:"30s"`
}

func init() {
	for _, name := range []string{"proxies", "writers", "closed-network", "probe", "verbose", "timeout", "output"} {
		besideFile[name] = true
	}
}

// Help adds to the command's help.
func (doctorCmd) Help() string {
	return `Looks at the cluster with the eyes of a proxy that has these settings, and says what
stands between it and the promise: brokers, topics under a rule, who else may write
them, clocks, addresses, certificates, and with --proxies whether running proxies
agree. Each finding has a severity, what was seen and what to do; docs/doctor.md
explains them all. Run it where the proxies run, with their configuration.

Nothing is changed, and nothing is written but, with --probe, up to four records for
each broker to the probe topic, if there is one.

Exit status: 0 nothing above a note; 3 warnings; 1 errors; 2 the command line or the
configuration is wrong; 130 ended at once by a second SIGINT.

Examples:
    offsetproxy doctor --config /etc/offsetproxy.yaml
    offsetproxy doctor --config /etc/offsetproxy.yaml --proxies http://proxy-1:9464,http://proxy-2:9464 --output json
    offsetproxy doctor --bootstrap kafka-1:9092 --require 'orders.*' --writers User:orders`
}

// Run looks, and reports.
func (c *doctorCmd) Run(env *environment, parsed *kong.Context) error {
	if c.Timeout <= 0 {
		return usage("--timeout %s: it must be positive", c.Timeout)
	}
	settings, err := (&serveCmd{Config: c.Config, settingFlags: c.settingFlags}).settings(parsed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(env.ctx, c.Timeout)
	defer cancel()
	const steps = 6
	facts := doctor.Gather(ctx, doctor.Config{
		Settings: settings, Proxies: c.Proxies, StepTimeout: c.Timeout / steps,
		Word: doctor.Word{Writers: c.Writers, ClosedNetwork: c.ClosedNetwork, Probe: c.Probe},
	})
	report := doctor.Judge(facts)
	if c.Output == outputJSON {
		err = printJSON(env.stdout, report)
	} else {
		err = writeReport(env.stdout, report, c.Verbose)
	}
	switch {
	case err != nil:
		return err
	case report.Worst == doctor.Error:
		return &exitError{code: exitFailed}
	case report.Worst == doctor.Warning:
		return &exitError{code: exitWarnings}
	}
	return nil
}
