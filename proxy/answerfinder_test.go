package proxy

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerFor has parts for so many partitions of two topics, each with its own
// base offset.
func answerFor(partitions int) *kmsg.ProduceResponse {
	answer := &kmsg.ProduceResponse{}
	for i, name := range []string{"a", "b"} {
		topic := kmsg.ProduceResponseTopic{Topic: name}
		for p := range partitions {
			topic.Partitions = append(topic.Partitions, kmsg.ProduceResponseTopicPartition{
				Partition: int32(p), BaseOffset: int64(i*partitions + p),
			})
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

// TestAnswersAreFoundInAnyOrder: of brokers that answer in the order of a hash
// table, no part may be taken for missing, however many there are.
func TestAnswersAreFoundInAnyOrder(t *testing.T) {
	for _, partitions := range []int{1, 2, 1000} {
		for _, shuffled := range []bool{false, true} {
			answer := answerFor(partitions)
			if shuffled {
				random := rand.New(rand.NewPCG(1, 2))
				random.Shuffle(len(answer.Topics), func(i, j int) {
					answer.Topics[i], answer.Topics[j] = answer.Topics[j], answer.Topics[i]
				})
				for i := range answer.Topics {
					parts := answer.Topics[i].Partitions
					random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
				}
			}
			finder := findIn(answer)
			for i, name := range []string{"a", "b"} {
				for p := range partitions {
					if got := finder.find(name, [16]byte{}, int32(p)); got == nil || got.BaseOffset != int64(i*partitions+p) {
						t.Fatalf("%d partitions, shuffled %t: got %+v for partition %d of %s", partitions, shuffled, got, p, name)
					}
				}
			}
		}
	}
}

func TestAnswersThatAreNotThereAreNotFound(t *testing.T) {
	answer := answerFor(2)
	answer.Topics[1].TopicID = [16]byte{1}
	for _, c := range []answerPart{{name: "a", partition: 2}, {name: "c"}, {name: "b"}, {name: "a", id: [16]byte{1}}} {
		finder := findIn(answer)
		if got := finder.find(c.name, c.id, c.partition); got != nil {
			t.Errorf("got %+v for %+v", got, c)
		}
	}
	empty := findIn(&kmsg.ProduceResponse{Topics: []kmsg.ProduceResponseTopic{{Topic: "a"}, {Topic: "b"}}})
	if got := empty.find("a", [16]byte{}, 0); got != nil {
		t.Errorf("got %+v in an answer without parts", got)
	}
}
