"""The commands about topics, offsets and the cluster, against the real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.testing import BrokerProcess


class Cli:
    """Runs commands in this process and gives what they print."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys

    def text(self, *arguments: str, code: int = 0) -> str:
        assert run([*arguments, "--bootstrap", self._bootstrap]) == code
        captured = self._capsys.readouterr()
        return captured.out if code == 0 else captured.err

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))


@pytest.fixture
def cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(bootstrap, capsys)


def test_a_topic_lives_and_dies(cli: Cli, topic: str) -> None:
    created = cli.json("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=777000")
    assert (created["name"], created["partitions"], created["created"]) == (topic, 2, True)
    (described,) = cli.json("topic", "describe", topic)
    assert described["topic_id"] == created["topic_id"]
    assert described["configs"] == {"retention.ms": "777000"}
    assert [partition["leader"] for partition in described["partitions"]] == [0, 0]
    assert topic in [each["name"] for each in cli.json("topic", "list")]
    assert cli.json("topic", "add-partitions", topic, "3") == {"name": topic, "partitions": 3}
    assert cli.json("topic", "delete", topic) == {"deleted": [topic]}
    assert topic not in [each["name"] for each in cli.json("topic", "list")]


def test_people_get_sentences_and_tables(cli: Cli, topic: str) -> None:
    assert cli.text("topic", "create", topic, "--partitions", "1") == f"created topic {topic} with 1 partition\n"
    assert cli.text("topic", "create", topic, "--if-not-exists") == f"topic {topic} exists already with 1 partition\n"
    assert cli.text("topic", "list").splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    described = cli.text("topic", "describe", topic).splitlines()
    assert described[0].startswith(f"{topic}  id ")
    assert described[-1].split() == ["0", "0", "0", "0", "0"]
    assert cli.text("topic", "add-partitions", topic, "2") == f"topic {topic} has 2 partitions now\n"
    assert cli.text("topic", "delete", topic, "--yes") == f"deleted {topic}\n"


def test_refusals_say_why_and_exit_with_1(cli: Cli, topic: str) -> None:
    cli.text("topic", "create", topic, "--partitions", "3")
    assert "exists already" in cli.text("topic", "create", topic, code=1)
    assert "bad name" in cli.text("topic", "create", "bad name", code=1)
    assert "(INVALID_PARTITIONS)" in cli.text("topic", "add-partitions", topic, "1", code=1)
    assert "retention.ms" in cli.text("topic", "config", "set", topic, "retention.ms=soon", code=1)
    assert cli.text("topic", "config", "get", topic, "no.such", code=1).startswith("tidelog: topics have no setting")


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "describe", "{}"],
        ["topic", "delete", "{}"],
        ["topic", "add-partitions", "{}", "5"],
        ["topic", "config", "get", "{}"],
        ["offsets", "{}"],
        ["consume", "{}"],
    ],
    ids=" ".join,
)
def test_a_misspelt_topic_is_recognised_everywhere(cli: Cli, topic: str, command: list[str]) -> None:
    cli.text("topic", "create", topic)
    misspelt = topic[:-1]
    told = cli.text(*(part.format(misspelt) for part in command), code=1)
    assert told.startswith(f"tidelog: there is no topic '{misspelt}': did you mean '{topic}'")


def test_settings_are_shown_and_changed(cli: Cli, topic: str) -> None:
    cli.text("topic", "create", topic)
    assert cli.text("topic", "config", "set", topic, "retention.ms=5000") == f"{topic}: retention.ms = 5000\n"
    (entry,) = cli.json("topic", "config", "get", topic, "retention.ms")
    assert (entry["value"], entry["source"]) == ("5000", "topic")
    cli.text("topic", "config", "set", topic, "--unset", "retention.ms")
    (entry,) = cli.json("topic", "config", "get", topic, "retention.ms")
    assert entry["source"] == "default"
    assert "cleanup.policy" in cli.text("topic", "config", "get", topic)


def test_offsets_are_shown(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.text("topic", "create", topic, "--partitions", "2")
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    cli.text("produce", topic, "--file", str(lines), "--partition", "1")
    assert cli.json("offsets", topic) == [
        {"partition": 0, "start": 0, "end": 0, "records": 0},
        {"partition": 1, "start": 0, "end": 3, "records": 3},
    ]
    (row,) = cli.json("offsets", topic, "--partition", "1", "--at", "1h", "--at", "0s")
    assert row["at"] == {"1h": 0, "0s": None}
    assert cli.text("offsets", topic).splitlines()[2].split() == ["1", "0", "3", "3"]
    assert "has partitions 0 to 1, not 7" in cli.text("offsets", topic, "--partition", "7", code=1)


def test_the_cluster_is_described(cli: Cli, broker: BrokerProcess, topic: str) -> None:
    cli.text("topic", "create", topic, "--partitions", "1")
    found = cli.json("cluster", "describe")
    assert [(each["id"], each["port"]) for each in found["brokers"]] == [(0, broker.port)]
    assert "controller" in cli.text("cluster", "describe")
    (directory,) = cli.json("cluster", "log-dirs")
    assert directory["path"] == str(broker.data_dir)
    assert directory["partitions"][f"{topic}-0"] == 0
    assert str(broker.data_dir) in cli.text("cluster", "log-dirs")
