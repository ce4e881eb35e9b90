package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handle decides what becomes of the request in c.frame. Of one that passes the front
// is enough.
func (c *conn) handle() error {
	request := c.frame[4:]
	h, err := wire.ParseRequestHeader(request)
	if err != nil {
		return malformed(reasonHeader, "%v", err)
	}
	c.p.metrics.request(h.APIKey)
	if err := checkVersion(h.APIKey, h.APIVersion); err != nil {
		return c.refuseVersion(h, err)
	}
	if c.p.embedded() && kmsg.RequestForKey(h.APIKey) == nil {
		// Brokers close such a connection; kfake would end the process.
		return fmt.Errorf("%w: api key %d is not known", errUnsupportedVersion, h.APIKey)
	}
	handled, err := c.identify(h)
	if err == nil && !handled {
		err = c.renewLogin()
	}
	if handled || err != nil {
		c.leaveRules() // of a Produce that was to pass
		return err
	}
	if a := &c.entrance.Access; a.bounds() && !a.allows(h.APIKey) {
		return c.deny(h)
	}
	if h.APIKey == int16(kmsg.Metadata) && !c.entrance.Access.allows(int16(kmsg.CreateTopics)) {
		if err := c.createNothing(h); err != nil {
			return err
		}
	}
	if h.APIKey == int16(kmsg.Produce) {
		return c.handleProduce(h)
	}
	if h.APIKey == int16(kmsg.AddPartitionsToTxn) {
		if handled, err := c.p.fencing.addPartitions(c, c.p.rules.inForce(), h, c.frame); handled || err != nil {
			return err
		}
	}
	return c.forward(h)
}

// embedded reports whether the brokers are kfake, as far as is known.
func (p *Proxy) embedded() bool {
	return p.cfg.BrokerKind == EmbeddedKfake || p.fencing.kinds.sawEmbedded.Load()
}

// refuseVersion ends the connection, as brokers do, except where the protocol
// has an answer that every client understands.
func (c *conn) refuseVersion(h wire.RequestHeader, err error) error {
	switch {
	case h.APIKey == int16(kmsg.ApiVersions) && h.APIVersion > 0:
		return c.answerLocally(h, apiVersionsTooNew())
	case h.APIKey == int16(kmsg.SASLHandshake) && h.APIVersion == 0:
		if err := c.answerLocally(h, oldHandshake()); err != nil {
			return err
		}
		return errOldHandshake
	}
	return err
}

// answerLocally fills a slot without asking upstream. The answer's first 8
// bytes are filled in by the slot.
func (c *conn) answerLocally(h wire.RequestHeader, frame []byte) error {
	s, err := c.newSlot(h.CorrelationID)
	if err != nil {
		return err
	}
	s.complete(frame)
	return nil
}

// handleProduce relays a Produce request, or leaves it to the fence. With
// acks=0 there is no answer, so it gets no slot.
func (c *conn) handleProduce(h wire.RequestHeader) error {
	acks, err := h.ProduceAcks(c.frame[4:])
	if err != nil {
		return malformed(reasonProduce, "%v", err)
	}
	if c.taken == nil { // else it passes
		c.taken = c.p.rules.take()
	}
	book := c.taken
	defer c.leaveRules()
	if c.coming.left == 0 && c.concernedBy(book) {
		if err := c.openUpstream(); err != nil {
			if answerErr := c.p.fencing.unreachable(c, book, h, c.frame); answerErr != nil {
				return answerErr
			}
			return err
		}
		if handled, err := c.p.fencing.produce(c, book, h, c.frame); handled || err != nil {
			return err
		}
	}
	c.producedUnder(book)
	if acks == 0 {
		return c.sendUpstream(c.frame, nil)
	}
	return c.forward(h)
}

// report logs why a connection ends, once: at a level that says whether
// someone should look.
func (c *conn) report(err error) {
	log := c.p.cfg.Logger
	remote := c.remote()
	var bad *malformedError
	var denied *deniedError
	var refused *LoginError
	var visitor *loginError
	if errors.Is(err, errIdle) {
		c.p.metrics.limit(limitIdle, "remote", remote)
	}
	switch {
	case errors.As(err, &denied):
		log.Warn("request is not allowed here, closing connection", "remote", remote, "listener", denied.listener, "api", kmsg.NameForKey(denied.key), "api_key", denied.key)
	case errors.As(err, &bad):
		c.p.metrics.malformed(bad.name)
		level := slog.LevelWarn
		if bad.name == reasonTruncated {
			level = slog.LevelInfo // as whoever tries TLS by hand
		}
		log.Log(context.Background(), level, "malformed input, closing connection", "remote", remote, "reason", bad.reason)
	case errors.Is(err, errUnsupportedVersion), errors.Is(err, errOldHandshake):
		c.p.metrics.malformed(reasonVersion)
		log.Warn("request cannot be served, closing connection", "remote", remote, "reason", err.Error())
	case errors.As(err, &visitor) && errors.Is(err, errNoLoginHere):
		log.Warn("client wants to log in, and the proxy does that for it: configure the client without SASL, or give the listener users", "remote", remote, "listener", c.entrance.Name)
	case errors.As(err, &visitor):
		log.Warn("client did not log in, closing connection", "remote", remote, "listener", c.entrance.Name, "mechanism", string(visitor.mechanism), "reason", visitor.Error())
	case errors.As(err, &refused):
		log.Error("brokers do not let the proxy in, closing the client's connection: mend the proxy's credentials or its user's at the brokers", "remote", remote, "node", c.target, "err", err)
	case errors.Is(err, errNoBroker):
		log.Warn("upstream cannot be reached, closing connection", withAdvice(err, "remote", remote, "node", c.target)...)
	case errors.Is(err, errClientClosed), errors.Is(err, errDraining), errors.Is(err, errIdle), errors.Is(err, errAddressFull), errors.Is(err, io.EOF):
		log.Debug("connection ends", "remote", remote, "reason", err.Error())
	default:
		log.Info("connection ends", "remote", remote, "node", c.node, "reason", err.Error())
	}
}
