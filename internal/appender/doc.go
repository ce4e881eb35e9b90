// Package appender makes single conditional appends, as a small Kafka client
// that never sends a record a second time unless it is certain that the first
// transmission appended nothing.
//
// Ordinary producer libraries retry on their own account, which hides what one
// transmission did; this package exists to show it, to the commands append and
// demo and to tests. Each append carries the headers expected-offset (the
// offset the record must get, ASCII decimal) and append-id.
//
// It is no general client: one record a request, plain TCP, no compression, no
// idempotence of its own, no SASL.
package appender
