"""kafka-python for refusals_test.go, which lists the commands"""

import logging

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

import session


def open_producer(command):
    config = {"enable_idempotence": command["idempotent"], "acks": -1 if command["acks"] == "all" else int(command["acks"])}
    if command["batch_bytes"]:
        config["batch_size"] = command["batch_bytes"]
    if command["transactional_id"]:
        config["transactional_id"] = command["transactional_id"]
    producer = KafkaProducer(
        bootstrap_servers=command["bootstrap"], delivery_timeout_ms=30000, request_timeout_ms=20000, **config
    )
    if command["transactional_id"]:
        producer.init_transactions()
    return producer


def tell(command, error):
    # str() puts the code before what the class keeps as its arguments.
    message = " ".join(str(a) for a in error.args) or str(error)
    session.failed(command, type(error).__name__, getattr(error, "errno", None) or 0, message)


def send(producer, command):
    future = producer.send(
        command["topic"],
        value=command["value"].encode(),
        partition=command["partition"],
        headers=session.headers(command),
        timestamp_ms=command.get("timestamp"),
    )
    future.add_callback(lambda metadata: session.done(command, metadata.offset))
    future.add_errback(lambda error: tell(command, error))


def next_offset(command):
    consumer = KafkaConsumer(bootstrap_servers=command["bootstrap"])
    try:
        partition = TopicPartition(command["topic"], command["partition"])
        return consumer.end_offsets([partition])[partition]
    finally:
        consumer.close()


def main():
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    session.hello(kafka.__version__)
    producers = {}
    for command in session.commands():
        try:
            do, producer = command["do"], producers.get(command.get("producer"))
            if do == "send":
                send(producer, command)
                continue
            offset = -1
            if do == "open":
                producers[command["producer"]] = open_producer(command)
            elif do == "begin":
                producer.begin_transaction()
            elif do == "commit":
                producer.commit_transaction()
            elif do == "abort":
                producer.abort_transaction()
            elif do == "next":
                offset = next_offset(command)
            elif do == "close":
                try:
                    producer.close(timeout=5)
                except KafkaTimeoutError:
                    pass  # it had more to send
            else:
                raise ValueError(do)
            session.done(command, offset)
        except KafkaError as e:
            tell(command, e)


if __name__ == "__main__":
    main()
