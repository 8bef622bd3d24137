"""Connect strings as Kafka and ZooKeeper know them."""

from __future__ import annotations

import pytest

from tidelog.znodes.connect_string import Ensemble, parse_connect_string


@pytest.mark.parametrize(
    ("text", "ensemble"),
    [
        ("localhost:2181", Ensemble(("localhost:2181",), "")),
        ("localhost", Ensemble(("localhost:2181",), "")),
        ("a:1,b:2, c:3", Ensemble(("a:1", "b:2", "c:3"), "")),
        ("a:1,b:2/kafka", Ensemble(("a:1", "b:2"), "/kafka")),
        (" a:1/deep/er/ ", Ensemble(("a:1",), "/deep/er")),
        ("a:1/", Ensemble(("a:1",), "")),
        ("[::1]:2182,127.0.0.1", Ensemble(("[::1]:2182", "127.0.0.1:2181"), "")),
    ],
)
def test_parse(text: str, ensemble: Ensemble) -> None:
    assert parse_connect_string(text) == ensemble
