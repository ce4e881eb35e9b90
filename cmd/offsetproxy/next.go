package main

import (
	"context"
	"fmt"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// clientID is what the commands call themselves at the brokers.
const clientID = "offsetproxy-cli"

type nextCmd struct {
	partitionFlags
	outputFlag
	clientFlags
	Timeout time.Duration `help:"How long to try." default:"10s"`
}

// Help adds to the command's help.
func (nextCmd) Help() string {
	return `The next offset is what the next record gets if nobody else appends before:
the value for append --expect. It is committed, so it may lag behind.

Example:
    offsetproxy next --bootstrap 127.0.0.1:9092 --topic events --partition 0`
}

// Run prints the offset.
func (c *nextCmd) Run(env *environment) error {
	way, err := c.way()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(env.ctx, c.Timeout)
	defer cancel()
	client := appender.New(appender.Config{Bootstrap: c.Bootstrap, ClientID: clientID, Dial: way.loggedIn()})
	defer client.Close()
	next, err := client.NextOffset(ctx, c.Topic, appender.Partition(c.Partition))
	if err != nil {
		return err
	}
	if c.Output == outputJSON {
		return printJSON(env.stdout, struct {
			Topic     string          `json:"topic"`
			Partition int32           `json:"partition"`
			Next      appender.Offset `json:"next"`
		}{c.Topic, c.Partition, next})
	}
	_, err = fmt.Fprintln(env.stdout, next)
	return err
}
