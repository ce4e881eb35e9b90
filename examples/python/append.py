"""append.py BOOTSTRAP TOPIC: appends one record to partition 0 at its next
offset, then asks for the same offset again and is refused."""
import sys
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

bootstrap, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap})


def append(expected, value):
    """Returns the offset; raises KafkaException."""
    result = []
    producer.produce(
        topic, value, partition=0,
        headers={"expected-offset": str(expected), "append-id": uuid.uuid4().bytes},
        on_delivery=lambda error, message: result.extend((error, message)))
    producer.flush()
    error, message = result
    if error:
        raise KafkaException(error)
    return message.offset()


consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used"})
_, next_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0))
for value in "first", "second":
    try:
        print("appended at", append(next_offset, value))
    except KafkaException as e:
        if e.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE:
            print("refused:", e.args[0].str())
        else:  # the record may be in the log: read the partition from next_offset
            print("not known to be appended:", e.args[0].str())
