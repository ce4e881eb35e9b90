package kafkacluster

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Login is the name and password of a user.
type Login struct{ User, Password string }

// Security is who may log in to a cluster. The brokers use Kafka's own
// StandardAuthorizer: what no ACL allows is forbidden to all but Super. Clients
// log in by SASL PLAIN; SCRAM is offered too, once the super user has given a
// user its SCRAM credentials (AlterUserScramCredentials). Nothing is encrypted
// without Options.TLS, and the controllers' ports trust everybody.
type Security struct {
	// Super may do everything; the brokers use it among themselves.
	Super Login
	// Users may do what ACLs allow their principals, User:<name>.
	Users []Login
}

// ErrBadLogin is returned for a name or password that would need escapes in
// Kafka's configuration.
var ErrBadLogin = errors.New("names and passwords are letters, digits, '-', '_' and '.'")

var loginForm = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (s *Security) check() error {
	for _, l := range s.logins() {
		if !loginForm.MatchString(l.User) || !loginForm.MatchString(l.Password) {
			return fmt.Errorf("user %q: %w", l.User, ErrBadLogin)
		}
	}
	return nil
}

func (s *Security) logins() []Login { return append([]Login{s.Super}, s.Users...) }

// properties are what a node's server.properties have instead of the open
// cluster's.
func (s *Security) properties(address, controller string) map[string]string {
	var users strings.Builder
	for _, l := range s.logins() {
		fmt.Fprintf(&users, " user_%s=\"%s\"", l.User, l.Password)
	}
	return map[string]string{
		"listeners":                                            fmt.Sprintf("CLIENTS://%s,CONTROLLER://%s", address, controller),
		"listener.security.protocol.map":                       "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":                           "CLIENTS",
		"sasl.enabled.mechanisms":                              "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"sasl.mechanism.inter.broker.protocol":                 "PLAIN",
		"listener.name.clients.plain.sasl.jaas.config":         s.Super.jaas(users.String()),
		"listener.name.clients.scram-sha-256.sasl.jaas.config": scramModule + " required;",
		"listener.name.clients.scram-sha-512.sasl.jaas.config": scramModule + " required;",
		"authorizer.class.name":                                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found":                       "false",
		// Nodes are nobody on each other's controller port.
		"super.users": "User:ANONYMOUS;User:" + s.Super.User,
	}
}

const scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"

// jaas is a JAAS configuration (KIP-85) that logs in as l; a broker's names its
// users besides.
func (l Login) jaas(more string) string {
	return fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s"%s;`,
		l.User, l.Password, more)
}

// clientProperties are those of a Java client that logs in as l, but for the security
// protocol.
func (l Login) clientProperties() map[string]string {
	return map[string]string{"sasl.mechanism": "PLAIN", "sasl.jaas.config": l.jaas("")}
}
