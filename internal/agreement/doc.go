// Package agreement says what all proxies of a cluster must have in common, and
// compares what each of them shows.
//
// Proxies do not talk to each other: they meet in the brokers alone, where the
// sequence check of one producer id decides who comes first. So each must stamp as
// the others do, fence the same topics, and count on no less time than the others
// take. What belongs to that is a [Part]; each part's reason stands at its name. A
// part has a hash, and so have all together, so that a person can compare proxies
// by eye and a program by one word.
//
// What is not a part may differ from proxy to proxy: addresses, credentials,
// limits of memory and connections, how long a batch may wait before it is stamped,
// what is remembered of idempotent clients, the probe topic. None of these is seen
// by another proxy.
//
// The package is pure: it opens nothing, reads no clock and starts nothing.
package agreement
