"""load.py BOOTSTRAP TOPIC FILE [FROM]: appends each line of FILE to partition 0, line n
at offset n. The log's end says how many lines are in it, so that a load which was
interrupted goes on where it stopped, without a checkpoint of its own. With FROM it begins
at that line: what is in the log already is recognised and not appended again."""
import sys
import zlib

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

BATCH = 100  # lines that are on their way together

bootstrap, topic, file = sys.argv[1:4]
producer = Producer({
    "bootstrap.servers": bootstrap,
    "enable.idempotence": True,  # keeps the order when the library sends again
    "delivery.timeout.ms": 10_000,  # then the outcome is unknown
    "linger.ms": 5,
})
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used", "enable.auto.commit": False})


def lines_in_the_log():
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)
    return end


def append_id(n, line):
    """The same each time the line is loaded: a line that is there already is its own."""
    return f"{n}:{zlib.crc32(line):08x}".encode()


def send(first, lines):
    """Appends lines at first and behind. Returns number and error of the first that
    failed, or None: all are in the log."""
    failed = []

    def told(n):
        def on_delivery(error, message):
            if error or message.offset() != n:
                failed.append((n, error))
        return on_delivery

    for n, line in enumerate(lines, first):
        producer.produce(
            topic, line, partition=0, on_delivery=told(n),
            headers={"expected-offset": str(n), "append-id": append_id(n, line)})
    producer.flush()
    return min(failed, key=lambda f: f[0], default=None)


def check(first, end):
    """Ends the program if the log holds anything but lines from first up to end."""
    consumer.assign([TopicPartition(topic, 0, first)])
    for n in range(first, end):
        message = consumer.poll(10)
        if message is None or message.error():
            sys.exit(f"offset {n} cannot be read: {message and message.error()}")
        if dict(message.headers() or []).get("append-id") != append_id(n, lines[n]):
            sys.exit(f"offset {n} holds something else than line {n} of {file}")


with open(file, "rb") as f:
    lines = f.read().splitlines()
next_line = int(sys.argv[4]) if len(sys.argv) > 4 else lines_in_the_log()
print("begins at line", next_line)
while next_line < len(lines):
    failed = send(next_line, lines[next_line:next_line + BATCH])
    if not failed:  # won, all of them
        next_line = min(next_line + BATCH, len(lines))
        continue
    n, error = failed
    if error is None:
        sys.exit(f"line {n} was appended at another offset: is there a rule for the topic here?")
    unknown = error.retriable() or error.code() in (KafkaError.UNKNOWN, KafkaError._MSG_TIMED_OUT)
    if error.code() != KafkaError.OFFSET_OUT_OF_RANGE and not unknown:
        sys.exit(f"line {n}: {error.str()}")  # not appended, and would not be next time
    # Refused or unknown: the log tells what is in it already, and the rest is sent again.
    next_line = lines_in_the_log()
    check(min(n, next_line), min(next_line, len(lines)))
print("all", len(lines), "lines are in the log")
