// Package proxy is the part of offsetproxy that Kafka clients connect to: it
// listens, relays requests and answers, keeps them in order, replaces the
// brokers' addresses by its own, and drains.
//
// Contract:
//
//   - A client cannot tell the proxy from the cluster, except by addresses and
//     by the highest versions in ApiVersions. What is not understood is
//     forwarded untouched; correlation ids come back as the client sent them.
//   - No upstream host or port reaches a client in an answer that tells
//     clients where brokers are. A broker without a port of its own here is
//     left out.
//   - Each client connection has one upstream connection, so authentication,
//     ACLs and quotas stay the client's.
//   - Answers leave in the order of their requests, wherever they come from.
//   - Memory for a connection is bounded by the configuration; a slow reader
//     slows its own connection only.
//   - New starts nothing. Run returns when everything that it started is gone.
//
// Two goroutines serve a connection, named clientLoop and upstreamLoop, with
// an ordered queue between them (pending.go). A third, the flusher, exists
// only while something that was completed elsewhere is being written.
//
// Not here: what the bytes mean (wire), the decision whether a batch may be
// appended (fence), TLS and credentials (the functions in Config are their
// place), balancing or failover between brokers.
package proxy
