"""librdkafka's part of the end-to-end tests.

    client.py suite BOOTSTRAP TOPIC     everything a client does, on a new topic
    client.py fenced BOOTSTRAP TOPIC PLAIN    conditions on TOPIC, which has a rule, and a transaction on PLAIN
    client.py golden BOOTSTRAP TOPIC CODEC    one batch of three records
    client.py version

Prints one "broker HOST:PORT" line for each broker address it was told, and
"ok NAME" for each check; ends with an exception when one fails.
"""

import sys
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 6
RECORDS = 10
TIMEOUT = 60


def ok(name):
    print("ok", name, flush=True)


def produce(producer, topic, tag, acknowledged=True):
    """Ten records into each partition; with acks=0 there is no offset."""
    delivered = []

    def on_delivery(error, message):
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        delivered.append(message)

    for partition in range(PARTITIONS):
        for i in range(RECORDS):
            producer.produce(
                topic,
                key=f"{tag}-{i}",
                value=f"{tag}/{partition}/{i}",
                partition=partition,
                headers={"tag": tag},
                on_delivery=on_delivery,
            )
    left = producer.flush(TIMEOUT)
    assert left == 0, f"{tag}: {left} records not delivered"
    assert len(delivered) == PARTITIONS * RECORDS, f"{tag}: {len(delivered)} reports"
    if acknowledged:
        assert all(m.offset() >= 0 for m in delivered), f"{tag}: no offset"
    return [m.value().decode() for m in delivered]


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while True:
        partitions = admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        if len(partitions) == PARTITIONS and all(p.leader >= 0 for p in partitions.values()):
            break
        assert time.monotonic() < deadline, f"no leaders: {partitions}"
        time.sleep(0.05)
    leaders = {p.leader for p in partitions.values()}
    assert len(leaders) == 3, f"the topic is not led by every broker: {leaders}"
    ok("create-topic")
    return admin


def describe(admin):
    for broker in admin.list_topics(timeout=TIMEOUT).brokers.values():
        print(f"broker {broker.host}:{broker.port}")
    cluster = admin.describe_cluster().result(TIMEOUT)
    assert len(cluster.nodes) == 3, cluster.nodes
    for node in cluster.nodes + [cluster.controller]:
        print(f"broker {node.host}:{node.port}")
    ok("describe-cluster")


def describe_group(admin, group):
    description = admin.describe_consumer_groups([group])[group].result(TIMEOUT)
    print(f"broker {description.coordinator.host}:{description.coordinator.port}")
    ok("describe-group")


def consume(bootstrap, topic, group, expected, forbidden, admin):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    missing, deadline = set(expected), time.monotonic() + TIMEOUT
    while missing:
        assert time.monotonic() < deadline, f"{len(missing)} records not consumed: {sorted(missing)[:5]}"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            continue
        value = message.value().decode()
        assert value not in forbidden, f"aborted record {value} was read"
        missing.discard(value)
    describe_group(admin, group)
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], TIMEOUT)
    assert all(c.offset > 0 for c in committed), committed
    consumer.close()
    ok("consume-group")


def suite(bootstrap, topic):
    admin = create(bootstrap, topic)
    describe(admin)
    written = []
    for codec in CODECS:
        # Leaders of a new topic may not serve yet, which acks=0 would not tell.
        for acks in ["all", "1", "0"]:
            producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "compression.type": codec, "linger.ms": 20})
            written += produce(producer, topic, f"{codec}-{acks}", acknowledged=acks != "0")
    ok("produce")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    written += produce(producer, topic, "idempotent")
    ok("idempotent")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    written += produce(producer, topic, "committed")
    producer.commit_transaction(TIMEOUT)
    producer.begin_transaction()
    aborted = produce(producer, topic, "aborted")
    producer.abort_transaction(TIMEOUT)
    ok("transactional")
    consume(bootstrap, topic, topic + "-group", written, set(aborted), admin)


def append(producer, topic, expected, value):
    """Returns the offset, or raises the error."""
    reports = []
    producer.produce(
        topic,
        value=value,
        partition=0,
        headers=[("expected-offset", str(expected)), ("append-id", value)],
        on_delivery=lambda error, message: reports.append((error, message)),
    )
    assert producer.flush(TIMEOUT) == 0, f"{value}: no report"
    [(error, message)] = reports
    if error is not None:
        raise confluent_kafka.KafkaException(error)
    return message.offset()


def failure(producer, topic, expected, value):
    """The code that an append which must fail fails with."""
    try:
        offset = append(producer, topic, expected, value)
    except confluent_kafka.KafkaException as e:
        assert not e.args[0].fatal(), e
        return e.args[0].code()
    raise AssertionError(f"{value} was appended at {offset}")


def fenced(bootstrap, topic, plain):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    assert append(producer, topic, 0, "first") == 0
    ok("won")
    code = failure(producer, topic, 0, "second")
    assert code == KafkaError.OFFSET_OUT_OF_RANGE, code
    ok("refused")
    assert append(producer, topic, 1, "third") == 1
    ok("goes-on")

    def begin():
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        return producer

    def refused(producer):
        code = failure(producer, topic, 2, "fourth")
        assert code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._PURGE_QUEUE), code

    producer = begin()
    produce(producer, plain, "before")
    refused(producer)
    producer.abort_transaction(TIMEOUT)
    ok("transaction-refused")
    producer.begin_transaction()
    produce(producer, plain, "elsewhere")
    producer.commit_transaction(TIMEOUT)
    # librdkafka ends a transaction that the broker never saw begin, which is
    # fatal for the producer; the next one works.
    producer = begin()
    refused(producer)
    try:
        producer.abort_transaction(TIMEOUT)
    except confluent_kafka.KafkaException as e:
        assert e.args[0].code() == KafkaError.INVALID_TXN_STATE, e
    producer = begin()
    produce(producer, plain, "elsewhere again")
    producer.commit_transaction(TIMEOUT)
    ok("transaction-elsewhere")


def golden(bootstrap, topic, codec):
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200, "acks": "all"})
    for i, key in enumerate(["key", None, ""]):
        producer.produce(
            topic,
            key=key,
            value=f"value {i} " + "x" * 40,
            partition=0,
            headers=[("expected-offset", str(41 + i)), ("append-id", b"\x00\x01" + bytes([i]))],
        )
    assert producer.flush(TIMEOUT) == 0


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "suite":
        suite(*arguments)
    elif command == "fenced":
        fenced(*arguments)
    elif command == "golden":
        golden(*arguments)
    elif command == "version":
        print(confluent_kafka.libversion()[0])
    else:
        sys.exit(__doc__)
