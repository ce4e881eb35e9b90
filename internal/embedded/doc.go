// Package embedded runs a Kafka cluster inside the process, for demo, dev and
// fast tests.
//
// It wraps kfake, which keeps its log in memory, never expires producer state,
// has no replication and marks duplicates in a way of its own: a proxy before
// it needs proxy.EmbeddedKfake. What it shows about safety proves nothing about
// real Kafka, and it is no target for load.
package embedded
