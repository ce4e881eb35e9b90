// Command kafkacluster runs a real Apache Kafka cluster on loopback in the
// foreground until it gets SIGINT or SIGTERM. It prints the bootstrap address
// on standard output once clients can connect:
//
//	go run ./internal/kafkacluster/cmd/kafkacluster -version 4.1.1 -port 9092
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// properties collects repeated -set name=value flags.
type properties map[string]string

func (p properties) String() string { return "" }

func (p properties) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("want name=value")
	}
	p[name] = value
	return nil
}

// logins collects repeated -user name=password flags, the super user first.
type logins []kafkacluster.Login

func (l *logins) String() string { return "" }

func (l *logins) Set(text string) error {
	user, password, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("want name=password")
	}
	*l = append(*l, kafkacluster.Login{User: user, Password: password})
	return nil
}

func main() {
	options := kafkacluster.Options{Properties: properties{}}
	flag.StringVar(&options.Version, "version", "", "Kafka version (default $KAFKA_VERSION, else "+kafkacluster.DefaultVersion+")")
	flag.IntVar(&options.Brokers, "brokers", 3, "number of brokers")
	flag.IntVar(&options.FirstPort, "port", 0, "port of the first broker; the others and the controllers follow (default: free ports)")
	flag.StringVar(&options.Dir, "dir", "", "directory for configuration, logs and data, kept at the end (default: a temporary one)")
	flag.StringVar(&options.Heap, "heap", "", "Java heap of a broker (default 768m)")
	flag.Var(properties(options.Properties), "set", "broker property name=value, repeatable")
	var users logins
	flag.Var(&users, "user", "SASL user name=password, repeatable; the first is the super user, the others may do what ACLs allow (default: no SASL, no ACLs)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "kafkacluster: unexpected argument %q; see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	if len(users) > 0 {
		options.Security = &kafkacluster.Security{Super: users[0], Users: users[1:]}
	}
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, "kafkacluster:", err)
		os.Exit(1)
	}
}

// run returns nil when a signal ended it.
func run(options kafkacluster.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := kafkacluster.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Println(cluster.Bootstrap())
	fmt.Fprintf(os.Stderr, "Kafka %s runs; files in %s; end with Ctrl-C\n", cluster.Version(), cluster.Dir())
	<-ctx.Done()
	return cluster.Stop()
}
