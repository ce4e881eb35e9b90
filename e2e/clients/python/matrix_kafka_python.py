"""kafka-python for clientmatrix_test.go"""

import logging
import time

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import OffsetOutOfRangeError

import matrix
from matrix import TIMEOUT, Cannot


class Client:
    def __init__(self, bootstrap, topic):
        self.bootstrap, self.topic = bootstrap, topic
        self.opened_admin = None

    @property
    def admin(self):
        if self.opened_admin is None:
            self.opened_admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self.opened_admin

    def producer(self, **config):
        return KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=20, **config)

    def write(self, producer, tag, acknowledged=True):
        headers = [("tag", tag.encode())]
        futures = [producer.send(self.topic, value=v.encode(), partition=p, headers=headers) for p, v in matrix.values(tag)]
        producer.flush(TIMEOUT)
        for future in futures:
            offset = future.get(TIMEOUT).offset
            assert offset >= 0 or not acknowledged, "no offset"

    def produce(self, tag, codec="none", acks="all", idempotent=False):
        producer = self.producer(
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
        )
        before = self.count()
        self.write(producer, tag, acks != "0")
        # Without answers nothing else tells that all has arrived.
        deadline = time.monotonic() + TIMEOUT / 3
        while self.count() < before + len(matrix.values(tag)):
            assert time.monotonic() < deadline, "records were lost"
            time.sleep(0.05)
        producer.close()

    def count(self):
        """How many records the topic has."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            return sum(consumer.end_offsets([TopicPartition(self.topic, p) for p in range(matrix.PARTITIONS)]).values())
        finally:
            consumer.close()

    def transact(self, committed, aborted):
        producer = self.producer(transactional_id=self.topic)
        producer.init_transactions()
        producer.begin_transaction()
        self.write(producer, committed)
        producer.commit_transaction()
        producer.begin_transaction()
        self.write(producer, aborted)
        producer.abort_transaction()
        producer.close()

    def read(self, group, kind, reading):
        if kind == "consumer":
            raise Cannot("it has no `group.protocol`")
        if kind == "share":
            raise Cannot("it has no share consumer")
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        while reading.goes_on():
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    reading.read(record.value)
        consumer.commit()
        consumer.close()

    def topics(self, name):
        self.admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)])
        deadline = time.monotonic() + TIMEOUT
        while name not in self.admin.list_topics():
            assert time.monotonic() < deadline, "the topic is not listed"
            time.sleep(0.05)
        self.admin.delete_topics([name])

    def cluster(self):
        brokers = self.admin.describe_cluster()["brokers"]
        for broker in brokers:
            matrix.broker(broker["host"], broker["port"])
        assert len(brokers) == 3, brokers

    def configs(self, topic):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "3600000"})
        self.admin.alter_configs([resource])
        deadline = time.monotonic() + TIMEOUT
        while "3600000" not in str(self.admin.describe_configs([resource])):
            assert time.monotonic() < deadline, "the setting is not shown"
            time.sleep(0.05)

    def groups(self, group):
        if hasattr(self.admin, "list_groups"):
            listed, described = self.admin.list_groups(), self.admin.describe_groups([group])
        else:
            listed, described = self.admin.list_consumer_groups(), self.admin.describe_consumer_groups([group])
        assert group in str(listed), listed
        assert "Empty" in str(described), described

    def fenced(self, topic):
        def append(expected):
            # A refusal is the end of an idempotent producer.
            producer = self.producer()
            headers = [("expected-offset", str(expected).encode()), ("append-id", str(time.monotonic_ns()).encode())]
            try:
                return producer.send(topic, value=b"x", partition=0, headers=headers).get(TIMEOUT).offset
            finally:
                producer.close()

        assert append(0) == 0
        try:
            raise AssertionError(f"appended at {append(0)}")
        except OffsetOutOfRangeError:
            pass
        assert append(1) == 1


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    matrix.main(kafka.__version__, Client)
