package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

// answerFinder finds the parts of an answer to a Produce. Small ones are in the
// order of the request; brokers collect larger ones in hash tables, in which the
// order is lost, so that an index is made when the first part is not where it
// would be.
type answerFinder struct {
	topics           []kmsg.ProduceResponseTopic
	topic, partition int // where the next part is, in order
	index            map[answerPart]*kmsg.ProduceResponseTopicPartition
}

// answerPart names a part of an answer. Of name and id the one that the answer's
// version does not have is zero.
type answerPart struct {
	name      string
	id        [16]byte
	partition int32
}

func findIn(answer *kmsg.ProduceResponse) answerFinder { return answerFinder{topics: answer.Topics} }

// find is the part for a partition, the first of several; nil if there is none.
func (f *answerFinder) find(name string, id [16]byte, partition int32) *kmsg.ProduceResponseTopicPartition {
	if f.index == nil {
		if p := f.inOrder(name, id, partition); p != nil {
			return p
		}
		f.makeIndex()
	}
	return f.index[answerPart{name, id, partition}]
}

// inOrder is the next part, if it is for the partition.
func (f *answerFinder) inOrder(name string, id [16]byte, partition int32) *kmsg.ProduceResponseTopicPartition {
	for f.topic < len(f.topics) && f.partition >= len(f.topics[f.topic].Partitions) {
		f.topic, f.partition = f.topic+1, 0
	}
	if f.topic >= len(f.topics) {
		return nil
	}
	t := &f.topics[f.topic]
	p := &t.Partitions[f.partition]
	if t.Topic != name || t.TopicID != id || p.Partition != partition {
		return nil
	}
	f.partition++
	return p
}

func (f *answerFinder) makeIndex() {
	f.index = map[answerPart]*kmsg.ProduceResponseTopicPartition{}
	for i := range f.topics {
		t := &f.topics[i]
		for j := range t.Partitions {
			part := answerPart{t.Topic, t.TopicID, t.Partitions[j].Partition}
			if f.index[part] == nil {
				f.index[part] = &t.Partitions[j]
			}
		}
	}
}
