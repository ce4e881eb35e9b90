"""aiokafka for clientmatrix_test.go"""

import asyncio
import contextlib
import logging
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError

import matrix
from matrix import TIMEOUT, Cannot


def waited(step):
    """A step of matrix.Run, which waits for it."""

    def call(client, *args, **kwargs):
        return asyncio.run(asyncio.wait_for(step(client, *args, **kwargs), 2 * TIMEOUT))

    return call


class Client:
    def __init__(self, bootstrap, topic):
        self.bootstrap, self.topic = bootstrap, topic

    def producer(self, **config):
        return AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=20, **config)

    @contextlib.asynccontextmanager
    async def admin(self):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def write(self, producer, tag, acknowledged=True):
        headers = [("tag", tag.encode())]
        sent = [await producer.send(self.topic, v.encode(), partition=p, headers=headers) for p, v in matrix.values(tag)]
        for answer in await asyncio.gather(*sent):
            assert not acknowledged or answer.offset >= 0, "no offset"

    @waited
    async def produce(self, tag, codec="none", acks="all", idempotent=False):
        producer = self.producer(
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
        )
        async with producer:
            await self.write(producer, tag, acks != "0")

    @waited
    async def transact(self, committed, aborted):
        async with self.producer(transactional_id=self.topic) as producer:
            await producer.begin_transaction()
            await self.write(producer, committed)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await self.write(producer, aborted)
            await producer.abort_transaction()

    @waited
    async def read(self, group, kind, reading):
        if kind == "consumer":
            raise Cannot("it has no `group.protocol`")
        if kind == "share":
            raise Cannot("it has no share consumer")
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        async with consumer:
            while reading.goes_on():
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for record in records:
                        reading.read(record.value)
            await consumer.commit()

    @waited
    async def topics(self, name):
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(name, 3, 3)])
            deadline = time.monotonic() + TIMEOUT
            while name not in await admin.list_topics():
                assert time.monotonic() < deadline, "the topic is not listed"
                await asyncio.sleep(0.05)
            await admin.delete_topics([name])

    @waited
    async def cluster(self):
        async with self.admin() as admin:
            brokers = (await admin.describe_cluster())["brokers"]
            for broker in brokers:
                matrix.broker(broker["host"], broker["port"])
            assert len(brokers) == 3, brokers

    @waited
    async def configs(self, topic):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "3600000"})
        async with self.admin() as admin:
            await admin.alter_configs([resource])
            deadline = time.monotonic() + TIMEOUT
            while "3600000" not in str(await admin.describe_configs([resource])):
                assert time.monotonic() < deadline, "the setting is not shown"
                await asyncio.sleep(0.05)

    @waited
    async def groups(self, group):
        async with self.admin() as admin:
            listed = await admin.list_consumer_groups()
            assert group in [name for name, *_ in listed], listed
            described = await admin.describe_consumer_groups([group])
            assert "Empty" in str(described), described

    @waited
    async def fenced(self, topic):
        async with self.producer() as producer:

            async def append(expected):
                headers = [("expected-offset", str(expected).encode()), ("append-id", str(time.monotonic_ns()).encode())]
                return (await producer.send_and_wait(topic, b"x", partition=0, headers=headers)).offset

            assert await append(0) == 0
            try:
                raise AssertionError(f"appended at {await append(0)}")
            except OffsetOutOfRangeError:
                pass
            assert await append(1) == 1


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    matrix.main(aiokafka.__version__, Client)
