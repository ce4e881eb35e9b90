// Package prober asks brokers what the fence needs to know, over control
// connections of the proxy's own, one for each broker.
//
// It reads:
//
//   - views ([Pool.ReadView]): a partition's log end together with the fence's
//     last sequence there, both true at one instant, and the high watermark;
//   - read-backs ([Pool.ReadRecords]): digests of the records stored at given
//     offsets, as the leader has them below its high watermark;
//   - surroundings ([Pool.ReadTopic], [Pool.ReadTopicByID],
//     [Pool.ReadBrokerConfigs], [Pool.ReadTopicConfigs]);
//   - how a broker deals with producer ids ([Pool.Probe]), by writing to a topic
//     made for that.
//
// # Contract
//
// All requests of one round of reading are written contiguously on one
// connection, in their order, because a broker keeps the order of a
// connection and that is what makes a view a view. A general client library
// does not promise it, hence the framing here. No request waits in the broker
// (max_wait is 0), so that none holds up the ones behind it.
//
// An error on a connection closes it and fails every call that waits on it
// with [ErrUnreachable]; the next call dials anew. Nothing is retried here
// except a view whose two log ends differ, or whose leader epoch was out of
// date. A caller may always ask again: a probe has producer ids of its own.
//
// # Not here
//
// Nothing is decided or cached about a partition except its leader epoch; how
// old a view may be and what a record's digest proves is the caller's
// business. Nothing is written to a user's topic. Authentication and TLS belong to
// [Config.Dial].
package prober
