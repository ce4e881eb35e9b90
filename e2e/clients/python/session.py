"""What the programs of refusals_test.go have in common: commands are read from
standard input, one JSON object a line, and what the library told its user is
printed, one JSON object a line, under the tag of the command.
"""

import json
import sys
import threading

_printing = threading.Lock()


def commands():
    for line in sys.stdin:
        yield json.loads(line)


def headers(command):
    return [(h["name"], h["value"].encode()) for h in command["headers"] or []]


def _say(report):
    with _printing:
        print(json.dumps(report), flush=True)


def hello(version):
    _say({"version": version})


def done(command, offset=-1):
    _say({"tag": command["tag"], "offset": offset})


def failed(command, kind, code, message):
    """kind is what a user's code tells failures apart by; code is the broker's, if it is one."""
    _say({"tag": command["tag"], "error": {"kind": kind, "code": code, "message": message}})
