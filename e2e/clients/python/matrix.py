"""What the Python programs of clientmatrix_test.go have in common, which runs
them as

    PROGRAM BOOTSTRAP TOPIC FENCED    with topics of three partitions; FENCED has a rule

The kinds of groups that the brokers have are in MATRIX_GROUPS, apart by spaces.

They print "version VERSION", one "broker HOST:PORT" line for each address that
the client was told, and for each thing that it was to do one of

    ok NAME
    cannot NAME: WHY    the client has no such thing
    failed NAME: WHY
"""

import os
import sys
import time
import traceback

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
RECORDS = 2  # in each partition
TIMEOUT = 30

# Every record is said twice over: a codec that does not pay is not used by some clients.
FILL = "x" * 200


class Cannot(Exception):
    """The client has no such thing, and why."""


def values(tag):
    """The records that are written under a name, by partition."""
    return [(p, f"{tag}/{p}/{i}/{FILL}") for p in range(PARTITIONS) for i in range(RECORDS)]


def texts(tag):
    return {value for _, value in values(tag)}


def broker(host, port):
    print(f"broker {host}:{port}", flush=True)


class Reading:
    """What a consumer must come to read, and must never."""

    def __init__(self, expected, forbidden):
        self.missing, self.forbidden = set(expected), set(forbidden)
        self.deadline = time.monotonic() + TIMEOUT

    def goes_on(self):
        if self.missing and time.monotonic() > self.deadline:
            raise AssertionError(f"{len(self.missing)} records not read: {sorted(v[:24] for v in self.missing)[:5]}")
        return bool(self.missing)

    def read(self, value):
        value = value.decode()
        assert value not in self.forbidden, f"read {value[:24]}"
        self.missing.discard(value)


class Run:
    """One client's way through everything. The client has

    produce(tag, **settings), with codec, acks or idempotent
    transact(committed, aborted), all in one producer
    read(group, kind, reading), and commit; kind is classic, consumer or share
    topics(name), cluster(), configs(topic), groups(group), fenced(topic)
    """

    def __init__(self, client, topic, fenced):
        self.client, self.topic, self.fenced = client, topic, fenced
        self.written, self.aborted = set(), set()

    def step(self, name, do):
        try:
            do()
        except Cannot as e:
            print(f"cannot {name}: {e}", flush=True)
        except Exception as e:  # whatever a client raises is what is reported
            traceback.print_exc()
            told = " ".join(f"{type(e).__name__}: {e}".split())
            print(f"failed {name}: {told}", flush=True)
        else:
            print("ok", name, flush=True)

    def produce(self, tag, **settings):
        self.client.produce(tag, **settings)
        self.written |= texts(tag)

    def transact(self):
        self.client.transact("committed", "aborted")
        self.written |= texts("committed")
        self.aborted |= texts("aborted")

    def group(self, kind):
        """Reads all, commits, and has another member go on behind that."""
        group = f"{self.topic}-{kind}"
        self.client.read(group, kind, Reading(self.written, self.aborted))
        before, tag = set(self.written), f"behind-{kind}"
        self.produce(tag)
        self.client.read(group, kind, Reading(texts(tag), before | self.aborted))

    def all(self):
        for codec in CODECS:
            self.step("codec/" + codec, lambda: self.produce("codec-" + codec, codec=codec))
        for acks in ["all", "1", "0"]:
            self.step("acks/" + acks, lambda: self.produce("acks-" + acks, acks=acks))
        self.step("idempotent", lambda: self.produce("idempotent", idempotent=True))
        self.step("transactions", self.transact)
        for kind in os.environ["MATRIX_GROUPS"].split():
            self.step("group/" + kind, lambda: self.group(kind))
        self.step("admin/topics", lambda: self.client.topics(self.topic + "-made"))
        self.step("admin/cluster", self.client.cluster)
        self.step("admin/configs", lambda: self.client.configs(self.topic))
        self.step("admin/groups", lambda: self.client.groups(self.topic + "-classic"))
        self.step("conditions", lambda: self.client.fenced(self.fenced))


def main(version, client_of):
    bootstrap, topic, fenced = sys.argv[1:]
    print("version", version, flush=True)
    Run(client_of(bootstrap, topic), topic, fenced).all()
