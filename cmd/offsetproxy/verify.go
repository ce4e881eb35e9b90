package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/verify"
)

// exitUnchecked is for a history that could not be checked.
const exitUnchecked = 3

type verifyCmd struct {
	outputFlag
	Bootstrap         []string      `help:"Address of a proxy; repeat it for each." placeholder:"HOST:PORT" sep:"none"`
	ReadFrom          []string      `help:"Where the log is read at the end; default: the proxies." placeholder:"HOST:PORT" sep:"none"`
	Topic             string        `help:"Topic to append to, which nobody else may write to meanwhile." placeholder:"NAME"`
	Create            bool          `help:"Create the topic if it does not exist."`
	Partitions        int           `help:"How many of its partitions to append to." default:"8"`
	ReplicationFactor int           `help:"Replicas of a created topic, or as many as there are brokers." default:"3"`
	Writers           int           `help:"How many append at once, through the proxies in turn." default:"16"`
	For               time.Duration `help:"How long." default:"60s"`
	MaxRecords        int           `help:"Records of a batch at most." default:"5"`
	Habits            []string      `help:"Habits of the writers, with commas; default: all." placeholder:"HABIT"`
	EndShare          float64       `help:"Share of the appends that say end." default:"0.2"`
	AheadShare        float64       `help:"Share of the others that expect an offset beyond the end." default:"0.04"`
	Seed              uint64        `help:"What choices are made from; default: a new one." placeholder:"N"`
	RequestTimeout    time.Duration `help:"What brokers are given for an append; writers wait twice as long." default:"1500ms"`
	Patience          time.Duration `help:"How long an append of unknown fate is sent again, and the end of the log is asked for again where more was acknowledged." default:"30s"`
	Settle            time.Duration `help:"How long to wait before the log is read." default:"2s"`
	Wait              time.Duration `help:"How long proxies and brokers that are not there are waited for, before the appends and for the log." default:"2m"`
	JudgeTime         time.Duration `help:"How long porcupine may take." default:"60s"`
	History           string        `help:"File to write the history to; without --bootstrap, to check." required:"" placeholder:"FILE" type:"path"`
	clientFlags
	Picture string `help:"File for a picture of a violation; default: FILE with .html." placeholder:"FILE" type:"path"`
}

// Help adds to the command's help.
func (verifyCmd) Help() string {
	return `Finds out whether your cluster behind your proxies keeps what is promised: writers
append through the proxies for some time, and all that they send and are told is
written to a history file. Then the log is read, and it is checked that
(a) each success lies exactly at its promised offsets, alone,
(b) nothing that was refused is in the log,
(c) what is unknown is there at most once, and only where it was promised,
(d) nothing is there that nobody wrote, and
(e) the history of each partition is linearizable.
Have faults while it runs: kill, freeze and cut off brokers and proxies. A first
SIGINT ends the appends early; the log is checked all the same.

With --history alone a stored history is checked again.

Habits: once (sent once), insisting (with an append-id, sent again until its fate is
known), moving (each time through the next proxy), restamping (each time with new
timestamps), rebuilding (each time in other batches), duplicating (twice at once),
idempotent (with a producer id and sequence), end (expects no offset but the end).

Exit status: 0 verified; 1 violations found; 2 the command line is wrong; 3 could not
be checked, or nothing was decided; 130 ended at once by a second SIGINT.

Examples:
    offsetproxy verify --bootstrap proxy-1:9092 --bootstrap proxy-2:9092 \
        --topic verify-1 --create --for 10m --history verify-1.jsonl
    offsetproxy verify --history verify-1.jsonl`
}

// Run appends and checks, or only checks.
func (c *verifyCmd) Run(env *environment) error {
	began := time.Now()
	if len(c.Bootstrap) > 0 {
		if err := c.run(env); err != nil {
			return err
		}
	} else if c.Topic != "" || c.Create {
		return usage("--topic is for appending, which needs --bootstrap; a stored history is checked with --history alone")
	}
	history, err := readHistory(c.History)
	if err != nil {
		return &exitError{exitUnchecked, err}
	}
	if !history.Complete() {
		note := ""
		if history.Cut {
			note = " Its last line is cut off: the program was killed."
		}
		return &exitError{exitUnchecked, fmt.Errorf("%s has what was told, but not the whole log, so that nothing can be checked.%s", c.History, note)}
	}
	verdict := verify.Judge(history, c.JudgeTime)
	if verdict.Counts.Transmissions == 0 {
		return &exitError{exitUnchecked, errors.New("nothing was appended, so that nothing can be checked: is a proxy at the addresses given?")}
	}
	if n := verdict.Counts; verdict.Verified() && n.OK+n.Taken+n.NotReached == 0 {
		return &exitError{exitUnchecked, fmt.Errorf("nothing is wrong, and nothing was decided: of %d appends the fate of %d is unknown, %d were refused for other reasons than their condition, "+
			"and %d were not sent, so that no promise was made that could be broken. See whether brokers and proxies answer in time (--request-timeout). The history is in %s",
			n.Operations, n.Unknown, n.Refused, n.NotSent, c.History)}
	}
	report := verifyReport{Verdict: verdict, history: history, file: c.History, took: time.Since(began)}
	if !verdict.Verified() {
		if report.picture, err = c.draw(verdict); err != nil {
			fmt.Fprintf(env.stderr, "offsetproxy: %v\n", err)
		}
	}
	if c.Output == outputJSON {
		err = printJSON(env.stdout, report.forPrograms())
	} else {
		err = report.write(env.stdout)
	}
	if err == nil && !verdict.Verified() {
		err = &exitError{code: exitFailed}
	}
	return err
}

// run appends and writes the history.
func (c *verifyCmd) run(env *environment) (err error) {
	way, err := c.way()
	if err != nil {
		return err
	}
	cfg := verify.Config{
		Proxies: c.Bootstrap, ReadFrom: c.ReadFrom, Topic: c.Topic, Create: c.Create, Partitions: c.Partitions,
		Replicas: c.ReplicationFactor, Writers: c.Writers, Duration: c.For, MaxRecords: c.MaxRecords,
		EndShare: c.EndShare, AheadShare: c.AheadShare, Seed: c.Seed,
		Dial: way.loggedIn(), RequestTimeout: c.RequestTimeout, Patience: c.Patience, Settle: c.Settle, Wait: c.Wait,
	}
	if c.EndShare == 0 {
		cfg.EndShare = -1
	}
	if c.AheadShare == 0 {
		cfg.AheadShare = -1
	}
	if c.Settle == 0 {
		cfg.Settle = -1
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano())
	}
	for _, name := range c.Habits {
		habit, err := verify.ParseHabit(name)
		if err != nil {
			return usage("--habits: %v", err)
		}
		cfg.Habits = append(cfg.Habits, habit)
	}
	if c.Output == outputText {
		cfg.Progress = env.stderr
		fmt.Fprintf(env.stderr, "Appending to topic %s for %v, with seed %d.\n", c.Topic, c.For, cfg.Seed)
	}
	file, err := os.Create(c.History)
	if err != nil {
		return usage("--history: %v", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	switch err := verify.Run(env.ctx, cfg, file); {
	case errors.Is(err, verify.ErrConfig):
		return &exitError{exitUsage, err}
	case errors.Is(err, verify.ErrUnprepared) && env.ctx.Err() != nil:
		return &exitError{exitUnchecked, errors.New("interrupted before the appends began")}
	case err != nil:
		return &exitError{exitUnchecked, err}
	}
	return nil
}

func readHistory(name string) (*verify.History, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	history, err := verify.ReadHistory(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return history, nil
}

// draw writes the picture and gives its name.
func (c *verifyCmd) draw(verdict *verify.Verdict) (string, error) {
	name := c.Picture
	if name == "" {
		name = strings.TrimSuffix(c.History, filepath.Ext(c.History)) + ".html"
	}
	file, err := os.Create(name)
	if err != nil {
		return "", err
	}
	out := bufio.NewWriter(file)
	err = errors.Join(verdict.Draw(out), out.Flush(), file.Close())
	return name, err
}
