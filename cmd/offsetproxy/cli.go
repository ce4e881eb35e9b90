package main

import "github.com/alecthomas/kong"

const description = `A Kafka proxy that makes appends conditional: a record that carries the
header expected-offset is appended at that offset or refused.

Try it without a cluster:

    offsetproxy demo     writers race through two proxies, the log is checked
    offsetproxy dev      an embedded broker and a proxy to play with

Exit status: 0 done; 1 failed; 2 the command line or configuration is wrong.
append has more: 3 refused, 4 outcome unknown, 5 appended at another offset;
verify: 3 could not be checked. doctor: 3 warnings. serve: 6 stopped, and requests in flight were cut off.
A second SIGINT or SIGTERM ends the program: 130.`

// cli is the tree of commands.
type cli struct {
	Serve       serveCmd         `cmd:"" help:"Run the proxy in front of a cluster."`
	Dev         devCmd           `cmd:"" help:"Run an embedded broker and one proxy, to play with."`
	Demo        demoCmd          `cmd:"" help:"Race writers through two proxies and check the log."`
	Verify      verifyCmd        `cmd:"" help:"Append through proxies, then check that what they promise was kept."`
	Append      appendCmd        `cmd:"" help:"Append one record at an expected offset."`
	Next        nextCmd          `cmd:"" help:"Print the next offset of a partition."`
	Doctor      doctorCmd        `cmd:"" help:"Say what stands between a cluster, a configuration and the promise."`
	User        userCmd          `cmd:"" help:"Make an entry of a users file from a password."`
	CheckConfig checkConfigCmd   `cmd:"" help:"Say what is wrong with a configuration file, or what it means."`
	AsFlag      kong.VersionFlag `name:"version" help:"Print the version." hidden:""`
	Version     versionCmd       `cmd:"" help:"Print the version."`
}

// output is the form of what a command prints.
type output string

const (
	outputText output = "text"
	outputJSON output = "json"
)

// outputFlag is shared by the commands whose output a script may want.
type outputFlag struct {
	Output output `help:"Form of the output: text or json." enum:"text,json" default:"text" short:"o"`
}

// partitionFlags name a partition, and where to ask for it.
type partitionFlags struct {
	Bootstrap []string `help:"Address of the proxy, host:port; several with commas." required:"" placeholder:"HOST:PORT"`
	Topic     string   `help:"Topic." required:"" placeholder:"NAME"`
	Partition int32    `help:"Partition." default:"0"`
}
