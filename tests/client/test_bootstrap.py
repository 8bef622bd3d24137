from __future__ import annotations

import pytest

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.net.address import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1,b:2", [Address("a", 1), Address("b", 2)]),
        (" a:1 , , b:2 ", [Address("a", 1), Address("b", 2)]),
        ("a:1,a:1,b:2,a:1", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_read_in_order(text: str, expected: list[Address]) -> None:
    assert list(parse_bootstrap(text)) == expected


def test_a_list_of_addresses_is_taken_too() -> None:
    assert parse_bootstrap(["a:1", "b:2"]) == (Address("a", 1), Address("b", 2))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "at least one"),
        (" , ", "at least one"),
        ("host:port", "number from 1 to 65535"),
        ("host:0", "number from 1 to 65535"),
        ("host:65536", "number from 1 to 65535"),
        ("host:٣", "number from 1 to 65535"),
        (":9092", "not host:port"),
        ("http://host", "not host:port"),
        ("::1:9092", r"\[address\]:port"),
        ("[::1", r"\[ipv6\]:port"),
        ("[::1]9092", r"\[ipv6\]:port"),
    ],
)
def test_a_bad_address_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_bootstrap(text)
