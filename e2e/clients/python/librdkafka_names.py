"""librdkafka for login_test.go: it looks every name up at 127.0.0.1, which the Python
binding cannot be told to do, so its library is called directly. Commands are those of
librdkafka.py: open, send and close.
"""

import ctypes
import glob
import os
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, Union, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p

import confluent_kafka

import session

PRODUCER, CONF_OK, MSG_F_COPY = 0, 0, 2
TOPIC, PARTITION, VALUE, OPAQUE, MSGFLAGS, HEADER = 1, 3, 4, 6, 7, 9
ALL = 3  # what is queued and in flight
AUTHENTICATION = -169
TIMEOUT_MS = 30_000


class Bytes(Structure):
    _fields_ = [("ptr", c_char_p), ("size", c_size_t)]


class Header(Structure):
    _fields_ = [("name", c_char_p), ("val", c_char_p), ("size", c_ssize_t)]


class Of(Union):
    _fields_ = [("cstr", c_char_p), ("i", c_int), ("i32", c_int32), ("mem", Bytes), ("header", Header), ("ptr", c_void_p), ("_pad", c_char * 64)]


class Field(Structure):  # rd_kafka_vu_t
    _fields_ = [("vtype", c_int), ("u", Of)]


class Message(Structure):  # rd_kafka_message_t
    _fields_ = [
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    ]


RESOLVE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, POINTER(c_void_p), c_void_p)
REPORT = CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
ERROR = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)


def library():
    package = os.path.dirname(confluent_kafka.__file__)
    for found in glob.glob(package + ".libs/librdkafka-*") + glob.glob(package + "/.dylibs/librdkafka*"):
        return ctypes.CDLL(found)  # which the import above has loaded
    raise FileNotFoundError("librdkafka of the Python package")


def declare(functions, of):
    for name, result, arguments in functions:
        function = getattr(of, name)
        function.restype, function.argtypes = result, arguments


libc, rd = ctypes.CDLL(None), library()
declare(
    [
        ("getaddrinfo", c_int, [c_char_p, c_char_p, c_void_p, POINTER(c_void_p)]),
        ("freeaddrinfo", None, [c_void_p]),
    ],
    libc,
)
declare(
    [
        ("rd_kafka_conf_new", c_void_p, []),
        ("rd_kafka_conf_set", c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
        ("rd_kafka_conf_set_resolve_cb", None, [c_void_p, RESOLVE]),
        ("rd_kafka_conf_set_dr_msg_cb", None, [c_void_p, REPORT]),
        ("rd_kafka_conf_set_error_cb", None, [c_void_p, ERROR]),
        ("rd_kafka_new", c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
        ("rd_kafka_poll", c_int, [c_void_p, c_int]),
        ("rd_kafka_produceva", c_void_p, [c_void_p, POINTER(Field), c_size_t]),
        ("rd_kafka_error_string", c_char_p, [c_void_p]),
        ("rd_kafka_err2name", c_char_p, [c_int]),
        ("rd_kafka_purge", c_int, [c_void_p, c_int]),
        ("rd_kafka_flush", c_int, [c_void_p, c_int]),
        ("rd_kafka_destroy", None, [c_void_p]),
    ],
    rd,
)


@RESOLVE
def resolve(node, service, hints, addresses, _):
    if node is None:
        libc.freeaddrinfo(addresses[0])
        return 0
    return libc.getaddrinfo(b"127.0.0.1", service, hints, addresses)


class Owner:
    """A producer, and the thread that serves its reports."""

    def __init__(self, command):
        properties = {"bootstrap.servers": command["bootstrap"], "acks": command["acks"], "linger.ms": 0, "message.timeout.ms": TIMEOUT_MS}
        properties.update(command.get("properties") or {})
        self.sent, self.errors = {}, {}  # commands by a number; what else the library said
        self.callbacks = REPORT(self.report), ERROR(self.error)  # kept, since the library has no reference
        conf, why = rd.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
        for name, value in properties.items():
            if rd.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), why, len(why)) != CONF_OK:
                raise ValueError(why.value.decode())
        rd.rd_kafka_conf_set_resolve_cb(conf, resolve)
        rd.rd_kafka_conf_set_dr_msg_cb(conf, self.callbacks[0])
        rd.rd_kafka_conf_set_error_cb(conf, self.callbacks[1])
        self.producer = rd.rd_kafka_new(PRODUCER, conf, why, len(why))
        if not self.producer:
            raise ValueError(why.value.decode())
        self.open = True
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.open = False
        self.thread.join()
        rd.rd_kafka_purge(self.producer, ALL)
        rd.rd_kafka_flush(self.producer, TIMEOUT_MS)
        rd.rd_kafka_destroy(self.producer)

    def serve(self):
        while self.open:
            rd.rd_kafka_poll(self.producer, 50)

    def error(self, _, code, reason, __):
        self.errors[reason.decode()] = code
        if code == AUTHENTICATION:
            rd.rd_kafka_purge(self.producer, ALL)  # else it tries on until the timeout

    def report(self, _, message, __):
        command, code = self.sent.pop(message[0].private), message[0].err
        if code == 0:
            session.done(command, message[0].offset)
        else:
            session.failed(command, rd.rd_kafka_err2name(code).decode(), code, "; ".join(self.errors))

    def send(self, command):
        number, value = int(command["tag"]), command["value"].encode()
        self.sent[number] = command
        fields = [
            (TOPIC, {"cstr": command["topic"].encode()}),
            (PARTITION, {"i32": command["partition"]}),
            (VALUE, {"mem": Bytes(value, len(value))}),
            (OPAQUE, {"ptr": number}),
            (MSGFLAGS, {"i": MSG_F_COPY}),
        ]
        fields += [(HEADER, {"header": Header(n.encode(), v, len(v))}) for n, v in session.headers(command)]
        array = (Field * len(fields))(*(Field(kind, Of(**of)) for kind, of in fields))
        failed = rd.rd_kafka_produceva(self.producer, array, len(fields))
        if failed:
            raise ValueError(rd.rd_kafka_error_string(failed).decode())


def main():
    session.hello(confluent_kafka.libversion()[0])
    owners = {}
    for command in session.commands():
        do = command["do"]
        if do == "open":
            owners[command["producer"]] = Owner(command)
        elif do == "send":
            owners[command["producer"]].send(command)
            continue
        elif do == "close":
            owners.pop(command["producer"]).close()
        else:
            raise ValueError(do)
        session.done(command)


if __name__ == "__main__":
    main()
