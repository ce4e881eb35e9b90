// Package kafkatest holds doubles for tests: a broker that does at the wire
// what a script says, and a client that sends frames and reads answers as
// they come. Both fail the test rather than return errors where a test could
// do nothing else.
//
// Not here: anything that behaves like Kafka by itself; kfake does that.
package kafkatest
