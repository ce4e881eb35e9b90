package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// advice says what to do about an error, or nothing.
func advice(err error) string {
	var unreachable *appender.ConnectError
	var missing *appender.NoTopicError
	var answered *appender.BrokerError
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "Another program uses that port. Choose another: listen, or metrics listen for the admin endpoints."
	case errors.As(err, &dns):
		return fmt.Sprintf("The name %q could not be resolved; check the address.", dns.Name)
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
