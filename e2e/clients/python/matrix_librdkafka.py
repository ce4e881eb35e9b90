"""librdkafka for clientmatrix_test.go"""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import matrix
from matrix import TIMEOUT, Cannot


class Client:
    def __init__(self, bootstrap, topic):
        self.bootstrap, self.topic = bootstrap, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def producer(self, **config):
        config = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, **config})

    def write(self, producer, tag, acknowledged=True):
        failures = []

        def report(error, message):
            if error is not None or (acknowledged and message.offset() < 0):
                failures.append(error or "no offset")

        for partition, value in matrix.values(tag):
            producer.produce(self.topic, value=value, partition=partition, headers={"tag": tag}, on_delivery=report)
        assert producer.flush(TIMEOUT) == 0, "records left"
        assert not failures, failures[0]

    def produce(self, tag, codec="none", acks="all", idempotent=False):
        producer = self.producer(acks=acks, compression_type=codec, enable_idempotence=idempotent)
        self.write(producer, tag, acks != "0")

    def transact(self, committed, aborted):
        producer = self.producer(transactional_id=self.topic)
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        self.write(producer, committed)
        producer.commit_transaction(TIMEOUT)
        producer.begin_transaction()
        self.write(producer, aborted)
        producer.abort_transaction(TIMEOUT)

    def read(self, group, kind, reading):
        if kind == "share":
            return self.share(group, reading)
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        if kind == "consumer":
            config["group.protocol"] = "consumer"
        try:
            consumer = Consumer(config)
        except KafkaException as e:
            if e.args[0].code() == KafkaError._INVALID_ARG:
                raise Cannot("it has no `group.protocol`") from e
            raise
        consumer.subscribe([self.topic])
        while reading.goes_on():
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                reading.read(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()

    def share(self, group, reading):
        if not hasattr(confluent_kafka, "ShareConsumer"):
            raise Cannot("it has no share consumer")
        self.alter(ResourceType.GROUP, group, "share.auto.offset.reset", "earliest")
        self.alter(ResourceType.GROUP, group, "share.isolation.level", "read_committed")
        consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.subscribe([self.topic])
        while reading.goes_on():
            for message in consumer.poll(0.5):
                if message.error() is None:
                    reading.read(message.value())
        consumer.commit_sync()
        consumer.close()

    def topics(self, name):
        self.admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT)
        deadline = time.monotonic() + TIMEOUT
        while name not in self.admin.list_topics(timeout=TIMEOUT).topics:
            assert time.monotonic() < deadline, "the topic is not listed"
            time.sleep(0.05)
        self.admin.delete_topics([name])[name].result(TIMEOUT)

    def cluster(self):
        for broker in self.admin.list_topics(timeout=TIMEOUT).brokers.values():
            matrix.broker(broker.host, broker.port)
        if hasattr(self.admin, "describe_cluster"):
            cluster = self.admin.describe_cluster().result(TIMEOUT)
            for node in cluster.nodes + [cluster.controller]:
                matrix.broker(node.host, node.port)
            assert len(cluster.nodes) == 3, cluster.nodes

    def alter(self, kind, name, key, value):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)

    def configs(self, topic):
        self.alter(ResourceType.TOPIC, topic, "retention.ms", "3600000")
        resource = ConfigResource(ResourceType.TOPIC, topic)
        deadline = time.monotonic() + TIMEOUT
        while self.admin.describe_configs([resource])[resource].result(TIMEOUT)["retention.ms"].value != "3600000":
            assert time.monotonic() < deadline, "the setting is not shown"
            time.sleep(0.05)

    def groups(self, group):
        listed = self.admin.list_consumer_groups().result(TIMEOUT)
        assert group in [g.group_id for g in listed.valid], listed.valid
        description = self.admin.describe_consumer_groups([group])[group].result(TIMEOUT)
        matrix.broker(description.coordinator.host, description.coordinator.port)

    def fenced(self, topic):
        producer = self.producer(enable_idempotence=True)

        def append(expected):
            reports = []
            producer.produce(
                topic,
                value=f"{expected}",
                partition=0,
                headers=[("expected-offset", str(expected)), ("append-id", f"{time.monotonic_ns()}")],
                on_delivery=lambda error, message: reports.append(error.code() if error else message.offset()),
            )
            assert producer.flush(TIMEOUT) == 0, "no report"
            return reports[0]

        assert append(0) == 0
        taken = append(0)
        assert taken == KafkaError.OFFSET_OUT_OF_RANGE, taken
        assert append(1) == 1


if __name__ == "__main__":
    matrix.main(confluent_kafka.libversion()[0], Client)
