"""kcat's own view of the cluster."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from topics import make_topic


def kcat_json(bootstrap: str, *arguments: str) -> Any:
    command = ["kcat", "-b", bootstrap, "-J", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_the_listing_names_the_broker_the_topic_and_its_leaders(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, partitions=2)
    listing = kcat_json(bootstrap, "-L", "-t", topic)
    assert listing["controllerid"] == 0
    assert listing["brokers"] == [{"id": 0, "name": bootstrap}]
    (entry,) = listing["topics"]
    assert entry["topic"] == topic
    assert [(part["partition"], part["leader"]) for part in entry["partitions"]] == [(0, 0), (1, 0)]


def test_the_listing_of_everything_holds_the_topic(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    assert topic in {entry["topic"] for entry in kcat_json(bootstrap, "-L")["topics"]}
