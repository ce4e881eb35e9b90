"""aiokafka for refusals_test.go, which lists the commands"""

import asyncio
import json
import logging
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

import session


async def open_producer(command):
    config = {"enable_idempotence": command["idempotent"], "acks": "all" if command["acks"] == "all" else int(command["acks"])}
    if command["batch_bytes"]:
        config["max_batch_size"] = command["batch_bytes"]
    if command["transactional_id"]:
        config["transactional_id"] = command["transactional_id"]
    producer = AIOKafkaProducer(bootstrap_servers=command["bootstrap"], request_timeout_ms=30000, **config)
    await producer.start()
    return producer


def tell(command, error):
    message = " ".join(str(a) for a in error.args) or str(error)
    session.failed(command, type(error).__name__, getattr(error, "errno", None) or 0, message)


async def send(producer, command):
    future = await producer.send(
        command["topic"],
        value=command["value"].encode(),
        partition=command["partition"],
        headers=session.headers(command),
        timestamp_ms=command.get("timestamp"),
    )

    def report(future):
        if future.cancelled():
            session.failed(command, "CancelledError", 0, "")
        elif future.exception() is None:
            session.done(command, future.result().offset)
        else:
            tell(command, future.exception())

    future.add_done_callback(report)


async def next_offset(command):
    consumer = AIOKafkaConsumer(bootstrap_servers=command["bootstrap"])
    await consumer.start()
    try:
        partition = TopicPartition(command["topic"], command["partition"])
        return (await consumer.end_offsets([partition]))[partition]
    finally:
        await consumer.stop()


async def carry_out(producers, command):
    do, producer = command["do"], producers.get(command.get("producer"))
    offset = -1
    if do == "send":
        await send(producer, command)
        return
    if do == "open":
        producers[command["producer"]] = await open_producer(command)
    elif do == "begin":
        await producer.begin_transaction()
    elif do == "commit":
        await producer.commit_transaction()
    elif do == "abort":
        await producer.abort_transaction()
    elif do == "next":
        offset = await next_offset(command)
    elif do == "close":
        await producer.stop()
    else:
        raise ValueError(do)
    session.done(command, offset)


async def main():
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    session.hello(aiokafka.__version__)
    producers = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        try:
            await carry_out(producers, command)
        except KafkaError as e:
            tell(command, e)


if __name__ == "__main__":
    asyncio.run(main())
