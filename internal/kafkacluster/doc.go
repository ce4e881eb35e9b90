// Package kafkacluster runs a real Apache Kafka cluster on loopback, for tests
// and for trying things by hand. Nothing is installed but Java and Maven: the
// brokers run from the jars that Maven Central serves, fetched once per version
// into a cache that concurrent processes share.
//
// Every node is broker and KRaft controller at once. Kafka's own output goes to
// files below Options.Dir, one for each node.
//
// The processes never outlive the program: Stop ends them, and on Linux the
// kernel kills them when the program dies in any other way, a panicking test
// included. Faults are part of the contract: a node can be killed, frozen and
// brought back on its own log.
//
// With Options.Security clients log in (SASL PLAIN or SCRAM, without TLS) and do
// what ACLs allow.
//
// Non-goals: TLS, separate controllers, data that is to be kept (Stop is
// a SIGKILL), and machines other than this one.
package kafkacluster
