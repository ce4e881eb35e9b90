package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/offsetproxy/offsetproxy/internal/appender"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
)

// advice says what to do about an error, or nothing.
func advice(err error) string {
	var unreachable *appender.ConnectError
	var missing *appender.NoTopicError
	var exchange *appender.ExchangeError
	var login *appender.LoginError
	var unknown *appender.UnknownError
	var answered *appender.BrokerError
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "Another program uses that port. Choose another: listen, or metrics listen for the admin endpoints."
	case errors.As(err, &dns):
		return fmt.Sprintf("The name %q could not be resolved; check the address.", dns.Name)
	case errors.As(err, &login):
		return "Look at --sasl-user, its password and --sasl-mechanism."
	case errors.Is(err, tlsfiles.ErrHandshake):
		return "" // what to do is said already
	case errors.Is(err, appender.ErrHTTP):
		return "HTTP is spoken there: that is the proxy's admin port (metrics.listen). Give the address that clients connect to (listen)."
	case errors.Is(err, appender.ErrTLS):
		return "TLS is spoken there: give --tls, or --tls-ca-file for an authority of your own."
	case errors.As(err, &unknown):
		return "" // what to do is said already
	case errors.As(err, &exchange) && errors.Is(err, context.DeadlineExceeded):
		return "The connection was taken, and no answer came in time: see the proxy's /readyz and its log; it may not reach its brokers."
	case errors.As(err, &exchange) && errors.As(err, &unreachable) && unreachable.Bootstrap && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)):
		return "The connection was closed: does that port expect TLS (--tls, --tls-ca-file) or a login (--sasl-mechanism, --sasl-user)?"
	case errors.As(err, &unreachable) && unreachable.Bootstrap:
		return "Check that a proxy listens there (see its log line \"serving\"). `offsetproxy dev` starts one to try with."
	case errors.As(err, &unreachable):
		return "The proxy names this address as the partition's leader. Check its advertised_host and broker_ports, and that the port is open."
	case errors.As(err, &missing) && missing.Partitions == 0:
		return fmt.Sprintf("Create it with any Kafka admin client, through the proxy or at the brokers, for example:\n    kafka-topics.sh --bootstrap-server HOST:PORT --create --topic %s --partitions 1", quote(missing.Topic))
	case errors.As(err, &answered) && answered.Code == appender.CodePolicyViolation:
		return "The proxy does not serve this topic; the message says why."
	}
	return ""
}

// quote makes a word safe to paste into a shell.
func quote(s string) string {
	plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:/@") == ""
	if s != "" && plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
