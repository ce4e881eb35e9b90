package proxy

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the proxy has logged in for a client, the broker may say for how long that
// lasts, and closes the connection at the first request after it (KIP-368). Before
// such a request the clientLoop logs in anew, between the client's requests, so that
// the client notices nothing. No clock has to run for that: a broker takes a new login
// even when the one before has ended.

const (
	// leastTerm is how long after a login a broker takes the next one on the
	// connection: Kafka refuses it within 1 s.
	leastTerm = 1100 * time.Millisecond
	// loginPatience bounds how long a new login waits for the answers to what the
	// client has asked before, some of which take as long as a group needs to gather.
	loginPatience = 10 * time.Minute
	// goneTick is how often it is looked, meanwhile, whether the client has gone.
	goneTick = 5 * time.Second
)

// loginDue reports whether the upstream connection has to log in anew before it is
// used. The clientLoop calls it, or whoever drives its exchange.
func (c *conn) loginDue() bool { return c.term.limited() && instant() >= c.term.renewAt() }

// renewLogin logs in anew if that is due. It waits for what was asked before; only the
// clientLoop calls it. An error ends the connection.
func (c *conn) renewLogin() error {
	if !c.loginDue() {
		return nil
	}
	c.waited = true
	if err := c.flushUpstream(); err != nil {
		return err
	}
	if early := c.term.ended.Add(leastTerm).Sub(instant()); early > 0 {
		timer := time.NewTimer(early)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	term, err := c.p.login(c.ctx, c.askLogin, "")
	if err != nil {
		return fmt.Errorf("%w: %w", errLoginLost, err)
	}
	c.term = term
	c.p.cfg.Logger.Debug("logged in anew for a client", "remote", c.remote(), "node", c.node, "lasts", term.lasts)
	return nil
}

// askLogin is an asker in the stream of the client's requests.
func (c *conn) askLogin(request kmsg.Request, answer kmsg.Response) error {
	type outcome struct {
		body []byte
		err  error
	}
	told := make(chan outcome, 1) // one send, which never blocks
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, request, 0)
	err := c.sendUpstream(frame, func(body []byte, err error) { told <- outcome{bytes.Clone(body), err} })
	if err == nil {
		err = c.flushUpstream()
	}
	if err != nil {
		return err
	}
	patience := loginPatience
	if kmsg.Key(request.Key()) == kmsg.SASLAuthenticate {
		patience = c.p.cfg.DialTimeout // nothing else is on its way
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	tick := time.NewTicker(goneTick)
	defer tick.Stop()
	for {
		select {
		case o := <-told:
			if o.err != nil {
				return o.err
			}
			return readLoginAnswer(request, answer, o.body)
		case <-late.C:
			c.abandonUpstream()
			return fmt.Errorf("%w: no answer to %s within %s", errAnswer, kmsg.NameForKey(request.Key()), patience)
		case <-tick.C:
			if c.clientGone() {
				return errClientClosed
			}
		}
	}
}
