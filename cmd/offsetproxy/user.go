package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/offsetproxy/offsetproxy/internal/localusers"
)

type userCmd struct {
	Name       string   `arg:"" help:"The user's name." placeholder:"NAME"`
	Mechanism  []string `help:"SCRAM-SHA-256 or SCRAM-SHA-512, with commas both; default: both." placeholder:"NAME"`
	Iterations int      `help:"How costly guessing the password is made, 4096 to 1048576; default ${default}." default:"8192" placeholder:"N"`
}

// Help adds to the command's help.
func (userCmd) Help() string {
	return `Reads a password, one line of standard input, and prints an entry for the users
file of a listener (listeners: sasl: users_file). It holds no password, but what is
enough to check one, also by the mechanism PLAIN; keep it secret all the same, since
it lets passwords be guessed.

Examples:
    offsetproxy user orders-app < password >> /etc/offsetproxy/users.yaml
    offsetproxy user orders-app --mechanism SCRAM-SHA-512 < password`
}

// maxPassword bounds what is read as a password, in bytes.
const maxPassword = 64 << 10

var errNoPassword = errors.New("no password: it is read from standard input, one line")

// Run makes the entry.
func (c *userCmd) Run(env *environment) error {
	if len(c.Mechanism) == 0 {
		c.Mechanism = []string{string(localusers.ScramSHA256), string(localusers.ScramSHA512)}
	}
	line, err := bufio.NewReader(io.LimitReader(env.stdin, maxPassword)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if password == "" || strings.ContainsRune(password, 0) {
		return &exitError{exitUsage, errNoPassword}
	}
	verifiers := map[localusers.Mechanism]localusers.Verifier{}
	for _, name := range c.Mechanism {
		v, err := localusers.NewVerifier(localusers.Mechanism(name), password, c.Iterations)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		verifiers[localusers.Mechanism(name)] = v
	}
	entry, err := localusers.Entry(c.Name, verifiers)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	_, err = io.WriteString(env.stdout, entry)
	return err
}
