// Package doctor looks at a cluster, a configuration and running proxies, and tells a
// person what stands between them and the promise.
//
// [Gather] asks: brokers, proxies, the names and files that the configuration has. It
// changes nothing, and writes nothing but, if it is asked to, up to four records to
// the probe topic for each broker. [Judge] makes findings of what was gathered; it is
// pure, so that tests can show it any cluster. Each finding has the [ID] of a check in
// [Checks], which docs/doctor.md explains.
//
// What cannot be seen is said to be unknown, and never counts as good.
package doctor
