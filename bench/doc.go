// Command bench measures ways to Kafka beside each other: the broker itself,
// bare relays, this proxy, any other whose address is given. Every sample of a
// measure is taken of each way in turn, in rounds, so that what slows the
// machine for a while slows all of them; it prints medians, ranges and the
// medians of ratios within a round, as a table and as JSON.
//
// All ways carry the same bytes: records hold their condition on ways where
// nobody reads it too. Whatever brokers advertise, a client dials the address of
// the way it measures, so a way leads to one broker.
//
// bench asserts no speed. It fails where a sample could not be taken, or where
// an append got another offset than it asked for.
package main
