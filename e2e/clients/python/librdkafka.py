"""librdkafka for refusals_test.go, which lists the commands"""

import threading

import confluent_kafka
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import session

TIMEOUT = 60


class Owner:
    """A producer, and the thread that serves its reports."""

    def __init__(self, command):
        config = {"bootstrap.servers": command["bootstrap"], "acks": command["acks"], "linger.ms": 0, "message.timeout.ms": 30000}
        config["reconnect.backoff.max.ms"] = 500  # connections break here all the time
        if command["idempotent"]:
            config["enable.idempotence"] = True
        if command["gapless"]:
            config["enable.gapless.guarantee"] = True
        if command["batch_bytes"]:
            config["batch.size"] = command["batch_bytes"]
        if command["transactional_id"]:
            config["transactional.id"] = command["transactional_id"]
        config.update(command.get("properties") or {})
        self.producer = Producer(config, logger=None)
        self.open = True
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        if command["transactional_id"]:
            self.producer.init_transactions(TIMEOUT)

    def close(self):
        self.open = False
        self.thread.join()
        self.producer.purge()
        self.producer.flush(TIMEOUT)

    def serve(self):
        while self.open:
            try:
                self.producer.poll(0.05)
            except KafkaException:
                pass  # fatal; the next send tells it

    def send(self, command):
        def report(error, message):
            if error is None:
                session.done(command, message.offset())
            else:
                tell(command, error)

        timestamp = {"timestamp": command["timestamp"]} if command.get("timestamp") else {}
        self.producer.produce(
            command["topic"],
            value=command["value"],
            partition=command["partition"],
            headers=session.headers(command),
            on_delivery=report,
            **timestamp,
        )


def tell(command, error):
    kind = error.name() + (", fatal" if error.fatal() else "")
    session.failed(command, kind, error.code(), error.str())


def next_offset(command):
    partition = TopicPartition(command["topic"], command["partition"])
    admin = AdminClient({"bootstrap.servers": command["bootstrap"]})
    return admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(TIMEOUT).offset


def main():
    session.hello(confluent_kafka.libversion()[0])
    owners = {}
    for command in session.commands():
        try:
            do, owner = command["do"], owners.get(command.get("producer"))
            if do == "send":
                owner.send(command)
                continue
            offset = -1
            if do == "open":
                owners[command["producer"]] = Owner(command)
            elif do == "begin":
                owner.producer.begin_transaction()
            elif do == "commit":
                owner.producer.commit_transaction(TIMEOUT)
            elif do == "abort":
                owner.producer.abort_transaction(TIMEOUT)
            elif do == "next":
                offset = next_offset(command)
            elif do == "close":
                owner.close()
                del owners[command["producer"]]
            else:
                raise ValueError(do)
            session.done(command, offset)
        except KafkaException as e:
            tell(command, e.args[0])


if __name__ == "__main__":
    main()
