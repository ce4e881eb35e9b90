package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	franzPartitions = 6
	franzRecords    = 10
)

// TestFranzClient is the Go client, and the only one that the embedded broker
// is tested with. It runs through both forms of the proxy: without any rule
// nothing but headers and addresses is read.
func TestFranzClient(t *testing.T) {
	besideOthers(t)
	t.Run("no rules", func(t *testing.T) { franzSuite(t, startProxy(t), "franz") })
	t.Run("other rules", func(t *testing.T) { franzSuite(t, startProxy(t, "--require", otherRule), "franz-beside") })
}

func franzSuite(t *testing.T, p *proxyProcess, topic string) {
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, topic, franzPartitions)

	written := map[string]bool{}
	// First, since acks=0 would not tell of leaders that do not serve yet.
	franzProduce(t, franzClient(t, p), topic, "idempotent", written)
	for codecName, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		for acksName, acks := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
			client := franzClient(t, p, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec))
			franzProduce(t, client, topic, codecName+"-"+acksName, written)
		}
	}
	aborted := map[string]bool{}
	transactional := franzClient(t, p, kgo.TransactionalID(topic))
	for _, end := range []struct {
		commit kgo.TransactionEndTry
		into   map[string]bool
	}{{kgo.TryCommit, written}, {kgo.TryAbort, aborted}} {
		if err := transactional.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		franzProduce(t, transactional, topic, fmt.Sprintf("transaction-%v", end.commit), end.into)
		if err := transactional.EndTransaction(t.Context(), end.commit); err != nil {
			t.Fatalf("end transaction: %v", err)
		}
	}
	franzConsume(t, p, topic, written, aborted)
	franzDescribe(t, p, admin, topic)
}

// TestFranzClientOnAFencedTopic is what the other clients do in runFenced.
func TestFranzClientOnAFencedTopic(t *testing.T) {
	needsFence(t)
	besideOthers(t)
	const topic, plain = "franz-fenced", "franz-fenced-not"
	p := startProxy(t, "--require", topic)
	admin := adminAt(t, p.bootstrap)
	createTopic(t, admin, topic, 1)
	createTopic(t, admin, plain, franzPartitions)
	idempotent := franzClient(t, p)
	if offset, err := franzAppend(t, idempotent, topic, 0, "first"); err != nil || offset != 0 {
		t.Fatalf("first: got %d, %v", offset, err)
	}
	if _, err := franzAppend(t, idempotent, topic, 0, "second"); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("second: got %v, want OFFSET_OUT_OF_RANGE", err)
	}
	if offset, err := franzAppend(t, idempotent, topic, 1, "third"); err != nil || offset != 1 {
		t.Errorf("third: got %d, %v", offset, err)
	}
	begin := func() *kgo.Client {
		t.Helper()
		client := franzClient(t, p, kgo.TransactionalID(topic))
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return client
	}
	transactional := begin()
	if _, err := franzAppend(t, transactional, topic, 2, "fourth"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("in a transaction: got %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}
	if err := transactional.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatalf("abort: %v", err)
	}
	switch err := transactional.BeginTransaction(); {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		// Where it names partitions by AddPartitionsToTxn (brokers before 4.0),
		// the client takes a refusal of that for fatal.
		transactional = begin()
	case err != nil:
		t.Fatalf("begin again: %v", err)
	}
	franzProduce(t, transactional, plain, "elsewhere", map[string]bool{})
	if err := transactional.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatalf("commit elsewhere: %v", err)
	}
	mustHold(t, topic, "first", "third")
}

func franzAppend(t *testing.T, client *kgo.Client, topic string, expected int64, value string) (int64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	record, err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value), Headers: []kgo.RecordHeader{
		{Key: "expected-offset", Value: strconv.AppendInt(nil, expected, 10)}, {Key: "append-id", Value: []byte(value)},
	}}).First()
	if err != nil {
		return -1, err
	}
	return record.Offset, nil
}

func franzClient(t *testing.T, p *proxyProcess, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(p.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func franzProduce(t *testing.T, client *kgo.Client, topic, tag string, into map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for partition := range int32(franzPartitions) {
		for i := range franzRecords {
			value := fmt.Sprintf("%s/%d/%d", tag, partition, i)
			into[value] = true
			records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)})
		}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce %s: %v", tag, err)
	}
}

func franzConsume(t *testing.T, p *proxyProcess, topic string, written, aborted map[string]bool) {
	t.Helper()
	client := franzClient(t, p, kgo.ConsumerGroup(topic+"-group"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for missing := len(written); missing > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d records not consumed: %v", missing, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			value := string(record.Value)
			if aborted[value] {
				t.Errorf("aborted record %s was read", value)
			}
			if written[value] {
				missing--
				delete(written, value)
			}
		})
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		t.Errorf("commit: %v", err)
	}
}

// franzDescribe asks every broker, at its port of the proxy, for all that names
// brokers.
func franzDescribe(t *testing.T, p *proxyProcess, admin *kadm.Client, topic string) {
	t.Helper()
	cluster, err := admin.BrokerMetadata(t.Context())
	if err != nil || len(cluster.Brokers) != brokerCount {
		t.Fatalf("describe the cluster: %v, %v", cluster.Brokers, err)
	}
	for id, address := range p.brokerAddresses(t) {
		conn, err := dialRaw(address)
		if err != nil {
			t.Fatalf("broker %d: %v", id, err)
		}
		checkAddressAnswers(t, p, conn, topic)
		conn.close()
	}
}

// advertised is a broker address in an answer.
type advertised struct {
	host string
	port int32
}

// checkAddressAnswers decodes each answer that bears addresses, and looks for
// the brokers' own ports anywhere in its bytes.
func checkAddressAnswers(t *testing.T, p *proxyProcess, conn *rawConn, topic string) {
	t.Helper()
	for version := int16(0); version <= 12; version++ {
		request := kmsg.NewPtrMetadataRequest()
		request.Version = version
		if version >= 10 {
			request.Topics = nil // all
		}
		var told []advertised
		for _, broker := range askForAddresses(t, p, conn, request).(*kmsg.MetadataResponse).Brokers {
			told = append(told, advertised{broker.Host, broker.Port})
		}
		checkAdvertised(t, p, fmt.Sprintf("Metadata v%d", version), told, brokerCount)
	}
	for version := int16(0); version <= 4; version++ {
		for kind, key := range []string{topic + "-group", topic} {
			if version == 0 && kind == 1 {
				continue // transactions came with v1
			}
			request := kmsg.NewPtrFindCoordinatorRequest()
			request.Version, request.CoordinatorType = version, int8(kind)
			request.CoordinatorKey, request.CoordinatorKeys = key, []string{key}
			response := askForAddresses(t, p, conn, request).(*kmsg.FindCoordinatorResponse)
			told := []advertised{{response.Host, response.Port}}
			if version >= 4 {
				told = nil
				for _, coordinator := range response.Coordinators {
					told = append(told, advertised{coordinator.Host, coordinator.Port})
				}
			}
			checkAdvertised(t, p, fmt.Sprintf("FindCoordinator v%d of %s", version, key), told, 1)
		}
	}
	for version := int16(0); version <= 1; version++ {
		request := kmsg.NewPtrDescribeClusterRequest()
		request.Version, request.EndpointType = version, 1
		var told []advertised
		for _, broker := range askForAddresses(t, p, conn, request).(*kmsg.DescribeClusterResponse).Brokers {
			told = append(told, advertised{broker.Host, broker.Port})
		}
		checkAdvertised(t, p, fmt.Sprintf("DescribeCluster v%d", version), told, brokerCount)
	}
}

func askForAddresses(t *testing.T, p *proxyProcess, conn *rawConn, request kmsg.Request) kmsg.Response {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(conn.frame(request)); err != nil {
		t.Fatal(err)
	}
	body, err := conn.answer()
	if err != nil {
		t.Fatalf("api key %d v%d: %v", request.Key(), request.GetVersion(), err)
	}
	for _, port := range brokers.ports() {
		if !direct && bytes.Contains(body, binary.BigEndian.AppendUint32(nil, uint32(port))) {
			t.Errorf("answer to api key %d v%d holds the upstream port %d", request.Key(), request.GetVersion(), port)
		}
	}
	response, err := decodeAnswer(request, body)
	if err != nil {
		t.Fatalf("api key %d v%d: %v", request.Key(), request.GetVersion(), err)
	}
	return response
}

func checkAdvertised(t *testing.T, p *proxyProcess, what string, told []advertised, want int) {
	t.Helper()
	if len(told) != want {
		t.Errorf("%s: got %d addresses, want %d", what, len(told), want)
	}
	for _, one := range told {
		if err := p.ownAddress(net.JoinHostPort(one.host, strconv.Itoa(int(one.port)))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
