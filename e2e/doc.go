// Package e2e tests the built program from outside: it starts it as processes,
// talks to it with real clients and with bytes of its own, and reads the log
// directly from the brokers. It knows nothing of the product's packages.
//
//	go test ./e2e                          the embedded broker kfake
//	OFFSETPROXY_E2E=kafka go test ./e2e    three real brokers of $KAFKA_VERSION
//
// Claims about safety and about foreign clients are proven on real Kafka only;
// those tests are skipped on kfake. Two more variables:
// OFFSETPROXY_E2E_LONG=1 makes the races longer, and OFFSETPROXY_E2E_DIRECT=1
// lets clients talk to the brokers without a proxy, which tells a fault of the
// suite from one of the proxy.
//
// TestProof is the longest and least kind of them: `make proof` runs it alone, for as
// long as it is told, and leaves history, faults and output behind. On failure it
// names where they are and the seed that makes the same faults again.
package e2e
