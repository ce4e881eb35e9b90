package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// addPartitions answers an AddPartitionsToTxn request that names a fenced
// topic: a transaction's markers take offsets in every partition it was told
// of, even when it is aborted before it writes. The rest of the request is not
// attempted, as brokers do when they refuse a part of it. It reports whether
// it took the request over. It runs on the clientLoop.
//
// Versions 4 and up carry several transactions and are sent by brokers only;
// they are treated alike.
func (f *fencing) addPartitions(c *conn, book *ruleBook, h wire.RequestHeader, frame []byte) (bool, error) {
	if !book.fences() {
		return false, nil
	}
	if most := c.p.cfg.MaxAddPartitionsBytes; len(frame) > most {
		f.metrics.limit(limitAddPartitions, "remote", c.remote(), "bytes", len(frame))
		return false, malformed(reasonTooLarge, "AddPartitionsToTxn of %d bytes, at most %d", len(frame), most)
	}
	request := kmsg.NewPtrAddPartitionsToTxnRequest()
	request.Version = h.APIVersion
	if err := request.ReadFrom(frame[4+h.BodyOffset:]); err != nil {
		return false, malformed(reasonHeader, "AddPartitionsToTxn v%d: %v", h.APIVersion, err)
	}
	answer := kmsg.NewPtrAddPartitionsToTxnResponse()
	answer.Version = h.APIVersion
	refused := false
	verdict := func(topic string) int16 {
		if !book.rule([]byte(topic)).fenced() {
			return kerr.OperationNotAttempted.Code
		}
		refused = true
		return kerr.TopicAuthorizationFailed.Code
	}
	for _, t := range request.Topics {
		topic := kmsg.NewAddPartitionsToTxnResponseTopic()
		topic.Topic = t.Topic
		code := verdict(t.Topic)
		for _, p := range t.Partitions {
			partition := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			partition.Partition, partition.ErrorCode = p, code
			topic.Partitions = append(topic.Partitions, partition)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	for _, tx := range request.Transactions {
		transaction := kmsg.NewAddPartitionsToTxnResponseTransaction()
		transaction.TransactionalID = tx.TransactionalID
		for _, t := range tx.Topics {
			topic := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			topic.Topic = t.Topic
			code := verdict(t.Topic)
			for _, p := range t.Partitions {
				partition := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				partition.Partition, partition.ErrorCode = p, code
				topic.Partitions = append(topic.Partitions, partition)
			}
			transaction.Topics = append(transaction.Topics, topic)
		}
		answer.Transactions = append(answer.Transactions, transaction)
	}
	if !refused {
		return false, nil
	}
	local := make([]byte, 8)
	if answer.IsFlexible() {
		local = append(local, 0)
	}
	return true, c.answerLocally(h, answer.AppendTo(local))
}
