// Package bench compares Produce through the proxy with Produce to the broker
// itself: in one run, interleaved in rounds, on real Kafka. It prints medians
// and the medians of paired ratios and asserts nothing; `make bench` runs it.
package bench
