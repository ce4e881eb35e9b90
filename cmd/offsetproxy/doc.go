// Command offsetproxy is a Kafka proxy that makes appends conditional on the
// offset they get. This package holds flags, wiring, signals and exit codes;
// what a command does with Kafka is in the packages it wires together.
package main
