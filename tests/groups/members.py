"""Members of a group as processes, followed as they run: what they own, what they got, what they committed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WITHIN_S = 60.0
"""For hanging, not for slowness: several processes share few cores, and sessions must first time out."""

SCRIPT = Path(__file__).resolve().parent / "member.py"

Partition = tuple[str, int]
RecordPlace = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A client library and the group protocol that it speaks."""

    client: str
    protocol: str = "classic"

    def command(self) -> list[str]:
        return [sys.executable, str(SCRIPT), "--client", self.client, "--protocol", self.protocol]

    def __str__(self) -> str:
        return self.client if self.protocol == "classic" else f"{self.client}-{self.protocol}"


CONFLUENT = Kind("confluent")
KAFKA_PYTHON = Kind("kafka-python")
AIOKAFKA = Kind("aiokafka")
CONFLUENT_CONSUMER = Kind("confluent", "consumer")
TIDELOG = Kind("tidelog")
TIDELOG_CONSUMER = Kind("tidelog", "consumer")

CLASSIC_KINDS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA, TIDELOG)
KINDS = (*CLASSIC_KINDS, CONFLUENT_CONSUMER, TIDELOG_CONSUMER)


class MemberFailedError(AssertionError):
    """A member ended by itself; the message carries what it said."""


class Member:
    """A running member. Its past stays readable when it is gone."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.expected_to_fail = False
        self._events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, name=f"{name} says", daemon=True),
            threading.Thread(target=self._listen, name=f"{name} complains", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __repr__(self) -> str:
        return f"{self.name} owns {sorted(self.owned())}"

    # --- its life ---

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """Ask it to close its consumer, and wait until it has."""
        self._process.terminate()
        self._ended()
        assert self._events[-1:] == [{"event": "closed"}], f"{self.name} did not close:\n{self.story()}"

    def kill(self) -> None:
        """End it at once, so that it can tell nobody."""
        self._process.kill()
        self._ended()

    def close(self) -> None:
        if self.running:
            self._process.kill()
        self._ended()

    def wait_for_failure(self) -> str:
        """What it said when its client gave up."""
        self.expected_to_fail = True
        self._ended()
        return str(self._events[-1].get("error", "")) if self._events else ""

    def check(self) -> None:
        """Complain if it ended by itself."""
        code = self._process.poll()
        if code is not None and code > 0 and not self.expected_to_fail and not self.events("closed"):
            raise MemberFailedError(f"{self.name} ended with {code}:\n{self.story()}")

    def _ended(self) -> None:
        self._process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)

    # --- what it said ---

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event["event"] == kind]

    def owned(self) -> set[Partition]:
        """What it owns by its own account; nothing when it has ended."""
        if not self.running:
            return set()
        changes = self.events("owns")
        return places(changes[-1]["partitions"]) if changes else set()

    def deliveries(self) -> list[RecordPlace]:
        return [(topic, partition, offset) for topic, partition, offset in (e["at"] for e in self.events("record"))]

    def values(self) -> list[str | None]:
        return [event["value"] for event in self.events("record")]

    def confirmed(self) -> list[RecordPlace]:
        """Deliveries whose commit it was told to have succeeded, while it owned the partition all the time."""
        found: list[RecordPlace] = []
        waiting: dict[Partition, list[int]] = {}
        for event in list(self._events):
            if event["event"] == "record":
                topic, partition, offset = event["at"]
                waiting.setdefault((topic, partition), []).append(offset)
            elif event["event"] == "committed":
                for topic, partition, upto in event["upto"]:
                    found += [(topic, partition, at) for at in waiting.get((topic, partition), ()) if at < upto]
                    waiting[topic, partition] = [at for at in waiting.get((topic, partition), ()) if at >= upto]
            elif event["event"] == "owns" and event["why"] != "assigned":
                kept = places(event["partitions"])
                waiting = {place: offsets for place, offsets in waiting.items() if place in kept}
        return found

    def committed(self) -> dict[Partition, int]:
        """The last position that it was told to be committed, by partition."""
        return {(topic, at): upto for event in self.events("committed") for topic, at, upto in event["upto"]}

    def story(self, last: int = 30) -> str:
        lines = [json.dumps(event) for event in self._events[-last:]]
        return "\n".join([f"--- {self.name}", *lines, *self._complaints[-15:]])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                if line.endswith("\n"):
                    self._events.append(json.loads(line))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._complaints.append(line.rstrip("\n"))


class Group:
    """A group and everybody who was ever in it."""

    def __init__(self, bootstrap: str, name: str, topics: Sequence[str], partitions: int) -> None:
        self.name = name
        self.members: list[Member] = []
        self.wanted = {(topic, partition) for topic in topics for partition in range(partitions)}
        """What its members are to own together."""
        self._bootstrap = bootstrap
        self._topics = topics

    def join(self, kind: Kind, *options: str, pattern: str | None = None) -> Member:
        """Start a member; further options are the member script's own."""
        interest = [f"--pattern={pattern}"] if pattern else [f"--topic={topic}" for topic in self._topics]
        command = [*kind.command(), "--bootstrap", self._bootstrap, "--group", self.name, *interest, *options]
        member = Member(f"{kind} #{len(self.members) + 1}", command)
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            member.close()

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.running]

    def settle(self, *, idle: int = 0) -> None:
        """Wait until every partition has one owner, and all but `idle` running members have some."""

        def settled() -> bool:
            self.check()
            owned = Counter(place for member in self.running for place in member.owned())
            without = sum(not member.owned() for member in self.running)
            return owned == Counter(self.wanted) and without == idle

        self.wait_for(settled, "every partition to have one owner")

    def wait_for(self, probe: Any, what: str) -> None:
        try:
            eventually(probe, what, within_s=WITHIN_S, every_s=0.05)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.stories()}\n{self._described()}") from None

    def _described(self) -> str:
        """What the broker makes of the group, for whoever has to find out why a test failed."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 3})
        try:
            found = admin.describe_consumer_groups([self.name], request_timeout=10)[self.name].result(10)
        except KafkaException as error:
            return f"the group cannot be described: {error}"
        shares = [
            f"{member.client_id} {member.member_id}: {sorted(str(at) for at in member.assignment.topic_partitions)}"
            for member in found.members
        ]
        return "\n".join([f"the broker calls the group {found.state.name}", *shares])

    def check(self) -> None:
        for member in self.members:
            member.check()

    def deliveries(self) -> Counter[RecordPlace]:
        return Counter(place for member in self.members for place in member.deliveries())

    def confirmed(self) -> Counter[RecordPlace]:
        return Counter(place for member in self.members for place in member.confirmed())

    def stories(self) -> str:
        return "\n".join(member.story() for member in self.members)


def places(listed: Iterable[Sequence[Any]]) -> set[Partition]:
    return {(topic, partition) for topic, partition in listed}
