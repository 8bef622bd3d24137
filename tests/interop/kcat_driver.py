"""kcat: the command line client, here Debian's with an older librdkafka of its own."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from client_drivers import DEFAULT_WRITING, READ_WITHIN_S, Got, Headers, Sent, Writing

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_END = b"|~key~|"
RECORD_END = b"|~end~|"
INPUT_SLACK_BYTES = 1_000_000
"""It holds input against the limit of a record before it has cut it into records."""

_HEAD = re.compile(rb"@(?P<offset>\d+) (?P<time>-?\d+) (?P<key>-?\d+) (?P<value>-?\d+) ")


class KcatDriver:
    name = "kcat"

    def can_write(self, record: Sent) -> bool:
        """Its input is text with separators: no empty values, no times, and no key without a value."""
        return bool(record.value) and record.key != b"" and record.timestamp_ms is None

    def write(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Writing = DEFAULT_WRITING
    ) -> list[int] | None:
        alike = itertools.groupby(records, key=lambda record: (record.key is None, record.headers))
        for (keyless, headers), group in alike:
            self._write(bootstrap, topic, list(group), keyless, headers, how)
        return None

    def _write(
        self, bootstrap: str, topic: str, records: list[Sent], keyless: bool, headers: Headers, how: Writing
    ) -> None:
        arguments = ["-P", "-t", topic, "-p", str(how.partition), "-z", how.codec, "-D", RECORD_END.decode()]
        arguments += ["-X", f"acks={how.acks}", "-X", f"enable.idempotence={str(how.idempotent).lower()}"]
        arguments += ["-X", f"message.max.bytes={how.max_bytes + INPUT_SLACK_BYTES}"]
        if not keyless:
            arguments += ["-K", KEY_END.decode()]
        for name, content in headers:
            arguments += ["-H", name if content is None else f"{name}={content.decode()}"]
        lines = [
            (record.value or b"") if keyless else (record.key or b"") + KEY_END + (record.value or b"")
            for record in records
        ]
        self._run(bootstrap, arguments, RECORD_END.join(lines))

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Got]:
        place = ["-C", "-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count)]
        layout = ["-f", "@%o %T %K %S %k%s%h" + RECORD_END.decode()]
        output = self._run(bootstrap, [*place, *layout, "-X", "check.crcs=true", "-X", "fetch.wait.max.ms=100"])
        got: list[Got] = []
        position = 0
        while position < len(output):
            head = _HEAD.match(output, position)
            assert head is not None, output[position : position + 100]
            key, position = _content(output, head.end(), int(head["key"]))
            value, position = _content(output, position, int(head["value"]))
            end = output.index(RECORD_END, position)
            headers = _headers(output[position:end].decode())
            got.append(Got(int(head["offset"]), int(head["time"]), key, value, headers))
            position = end + len(RECORD_END)
        return got

    def _run(self, bootstrap: str, arguments: list[str], data: bytes = b"") -> bytes:
        program = shutil.which("kcat")
        assert program, "kcat is not installed: it is Debian's and Ubuntu's package kcat (apt-get install kcat)"
        command = [program, "-b", bootstrap, *arguments]
        done = subprocess.run(command, input=data, capture_output=True, timeout=READ_WITHIN_S, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout


def _content(output: bytes, position: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, position
    return output[position : position + length], position + length


def _headers(text: str) -> Headers:
    if not text:
        return ()
    pairs = (part.partition("=") for part in text.split(","))
    return tuple((name, None if content == "NULL" else content.encode()) for name, _equals, content in pairs)
