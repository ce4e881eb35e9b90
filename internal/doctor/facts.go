package doctor

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/resources"
)

// Facts are what was gathered. Whatever has a Failure was asked for in vain.
type Facts struct {
	// At is when the gathering began.
	At time.Time
	// Settings are what a proxy would run with.
	Settings *config.Settings
	// Word is what the operator says of what cannot be seen.
	Word Word

	// Seeds are the bootstrap addresses, in their order.
	Seeds []Seed
	// Cluster is its id; empty: nobody has answered.
	Cluster string
	// Brokers by node id.
	Brokers []Broker
	// Clock is the controller's.
	Clock ClockReading
	// ClusterRights are the proxy's principal's on the cluster.
	ClusterRights Rights

	// Topics are those that the principal may see, and those that rules name.
	Topics []Topic
	// TopicsFailed says why topics could not be listed.
	TopicsFailed Failure
	// ACLs are those of topics, and ACLsFailed why they are not known.
	ACLs       []ACL
	ACLsFailed Failure

	// Addresses are what clients would be told.
	Addresses []Address
	// Files are the TLS files of the configuration.
	Files []TLSFiles
	// PasswordFailed says why the proxy's password cannot be read, if it needs one.
	PasswordFailed Failure
	// Given is what the system gives this process.
	Given resources.Given

	// Proxies are those that were to be compared.
	Proxies []Proxy
}

// Word is what the operator says.
type Word struct {
	// Writers are the principals of clients that come through the proxies, as
	// "User:name".
	Writers []string
	// ClosedNetwork: the network lets the proxies alone reach the brokers.
	ClosedNetwork bool
	// Probe: brokers are to be probed by records on the probe topic.
	Probe bool
}

// Failure is why something could not be learnt. The zero value: it was.
type Failure struct {
	// Code is the broker's error code, if it has answered.
	Code int16
	// Text is for a person.
	Text string
}

// Failed reports whether it is one.
func (f Failure) Failed() bool { return f.Text != "" }

// Seed is a bootstrap address.
type Seed struct {
	Address string
	Failed  Failure
}

// Broker is one of the cluster.
type Broker struct {
	Node int32
	// Address is what it advertises.
	Address string
	// Failed says why it does not answer.
	Failed Failure
	// Version is a guess by what it speaks.
	Version string
	// APIs are the versions that it speaks, by key.
	APIs map[int16]Versions
	// Configs are its settings by name; a nil value is hidden.
	Configs       map[string]*string
	ConfigsFailed Failure
	// Expires is when the first of its certificates does; zero: it speaks plain, or
	// was not reached.
	Expires time.Time
	// Kind is what a probe has seen; nil: it was not asked for, or has failed.
	Kind       *Kind
	KindFailed Failure
	// IPs are what the host of Address stands for, as far as is known.
	IPs []string
}

// Versions of an API, inclusive.
type Versions struct{ Min, Max int16 }

// Kind is what a probe has seen of a broker.
type Kind struct {
	// MarksBy says by what it marks duplicates.
	MarksBy string
	// Marks reports whether it does.
	Marks bool
	// Embedded: it is kfake.
	Embedded bool
	// Refusal says why nothing on it can be fenced; empty: it can.
	Refusal string
}

// ClockReading is what another machine's clock said.
type ClockReading struct {
	// Of is whose, for a person.
	Of string
	// Said lay between Before and After on this machine's clock.
	Said, Before, After time.Time
	// Grain is how exact Said is.
	Grain  time.Duration
	Failed Failure
}

// Rights is a set of operations.
type Rights struct {
	// Known: the broker has told.
	Known bool
	// Bits has bit n for the operation with Kafka's number n.
	Bits int32
}

// Has reports whether an operation is among them, or they are not known.
func (r Rights) Has(operation kmsg.ACLOperation) bool {
	return !r.Known || r.Bits&(1<<operation) != 0
}

// Topic is one topic.
type Topic struct {
	Name string
	// Failed says why it cannot be seen: it does not exist, or the right is missing.
	Failed Failure
	// Internal: it is Kafka's own.
	Internal   bool
	Partitions []Partition
	// Rights are the proxy's principal's.
	Rights Rights
	// Configs are its settings by name, for topics under a rule.
	Configs       map[string]*string
	ConfigsFailed Failure
	// Producers are those that brokers remember, for topics that are fenced.
	Producers       []Producer
	ProducersFailed Failure
}

// Partition is one partition of a topic.
type Partition struct {
	ID     int32
	Leader int32 // −1: none
	// Replicas and InSync are node ids.
	Replicas, InSync []int32
}

// Producer is what a broker remembers of a producer id in a partition.
type Producer struct {
	Partition int32
	ID        int64
	// Last is the timestamp of its last batch, which the writer has set.
	Last time.Time
	// Open: it has a transaction there.
	Open bool
}

// ACL is one that is about topics.
type ACL struct {
	// Pattern is literal or prefixed, and Name what it matches: "*" as a literal is
	// every topic.
	Prefixed bool
	Name     string
	// Principal is as "User:name"; "User:*" is everybody.
	Principal string
	Host      string
	Operation kmsg.ACLOperation
	// Deny: it forbids.
	Deny bool
}

// Address is a host that clients of a listener would be told.
type Address struct {
	Listener string
	Host     string
	// Nodes are the brokers that it is for, with the ports that clients are told; 0:
	// any. −1 is the bootstrap.
	Nodes map[int32]int
	// IPs are what it resolves to here.
	IPs    []string
	Failed Failure
}

// TLSFiles is one side's.
type TLSFiles struct {
	// Side is "upstream" or "listener NAME".
	Side    string
	Expires time.Time // zero: nothing does
	Failed  Failure
	// Uncovered says which names that clients are told the certificate lacks.
	Uncovered []string
}

// Proxy is a running proxy.
type Proxy struct {
	// URL is where its admin endpoints are.
	URL string
	// Failed says why its agreement could not be read.
	Failed    Failure
	Agreement agreement.Agreement
	Version   string
	Since     time.Time
	// NotReady is what /readyz said; empty: it is ready.
	NotReady string
	// Hidden says which brokers its clients do not see, and why.
	Hidden []string
	Clock  ClockReading
}
