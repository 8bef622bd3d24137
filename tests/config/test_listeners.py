"""What is bound, what is advertised, and what is said about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.definition import ConfigError
from tidelog.config.listeners import Endpoint, ListenerSet, SecurityProtocol, parse_listeners

PLAINTEXT = SecurityProtocol.PLAINTEXT


def problems_of(
    listeners: list[str],
    *,
    advertised: list[str] | None = None,
    protocol_map: list[str] | None = None,
    inter_broker_name: str | None = None,
) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        parse_listeners(
            listeners,
            advertised=advertised,
            protocol_map=protocol_map or ["PLAINTEXT:PLAINTEXT", "SSL:SSL"],
            inter_broker_name=inter_broker_name,
        )
    return refusal.value.problems


def addresses(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [str(endpoint) for endpoint in endpoints]


@pytest.mark.parametrize(
    ("listener", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("plaintext://broker-1.example:1", "broker-1.example", 1),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://0.0.0.0:0", "0.0.0.0", 0),
    ],
)
def test_listeners(listener: str, host: str, port: int) -> None:
    assert parse_listeners([listener]).bound == (Endpoint("PLAINTEXT", PLAINTEXT, host, port),)


@pytest.mark.parametrize(
    ("listener", "advertised"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092"),
        ("PLAINTEXT://[::]:9092", "PLAINTEXT://localhost:9092"),
        ("PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://127.0.0.1:9092"),
    ],
)
def test_a_listener_on_every_interface_is_advertised_to_this_machine_with_a_warning(
    listener: str, advertised: str
) -> None:
    listeners = parse_listeners([listener])
    assert addresses(listeners.advertised) == [advertised]
    (warning,) = listeners.warnings
    assert "set advertised.listeners=PLAINTEXT://<name or address they reach this machine by>:9092" in warning


def test_a_named_address_is_advertised_as_it_is() -> None:
    listeners = parse_listeners(["PLAINTEXT://[fe80::1]:9092"])
    assert addresses(listeners.advertised) == ["PLAINTEXT://[fe80::1]:9092"]
    assert listeners.warnings == ()


def test_advertised_listeners_are_taken_as_given() -> None:
    listeners = parse_listeners(
        ["INSIDE://:9092", "OUTSIDE://:9093"],
        advertised=["INSIDE://broker:9092", "OUTSIDE://example.org:19093"],
        protocol_map=["INSIDE:PLAINTEXT", "OUTSIDE:SASL_SSL"],
        inter_broker_name="inside",
    )
    assert addresses(listeners.advertised) == ["INSIDE://broker:9092", "OUTSIDE://example.org:19093"]
    assert [endpoint.protocol for endpoint in listeners.bound] == [PLAINTEXT, SecurityProtocol.SASL_SSL]
    assert listeners.inter_broker_name == "INSIDE"
    assert listeners.warnings == ()
    outside = listeners.advertised_on("OUTSIDE")
    assert outside is not None
    assert outside.host == "example.org"
    assert listeners.advertised_on("ELSEWHERE") is None


def test_a_listener_that_is_not_advertised_is_warned_about() -> None:
    listeners = parse_listeners(["PLAINTEXT://:1", "SSL://:2"], advertised=["PLAINTEXT://h:1"])
    assert addresses(listeners.advertised) == ["PLAINTEXT://h:1"]
    assert "listener SSL is not in advertised.listeners" in listeners.warnings[0]


def test_the_brokers_listener_is_the_named_one_or_the_protocols_or_the_first() -> None:
    both = ["SSL://h:1", "PLAINTEXT://h:2"]
    assert parse_listeners(both).inter_broker_name == "PLAINTEXT"
    assert parse_listeners(both, inter_broker_protocol="SSL").inter_broker_name == "SSL"
    assert parse_listeners(both, inter_broker_name="ssl").inter_broker_name == "SSL"
    assert parse_listeners(["SSL://h:1"]).inter_broker_name == "SSL"


def test_ports_chosen_by_the_system_are_filled_in() -> None:
    listeners = parse_listeners(["PLAINTEXT://127.0.0.1:0", "SSL://:9093"])
    settled = listeners.with_ports({"PLAINTEXT": 40000, "SSL": 9093})
    assert addresses(settled.bound) == ["PLAINTEXT://127.0.0.1:40000", "SSL://:9093"]
    assert addresses(settled.advertised) == ["PLAINTEXT://127.0.0.1:40000", "SSL://localhost:9093"]


def test_a_kraft_controllers_listener_is_left_out() -> None:
    listeners = parse_listeners(["PLAINTEXT://h:9092", "CONTROLLER://:9093"], controller_names=["controller"])
    assert addresses(listeners.bound) == ["PLAINTEXT://h:9092"]
    assert "no KRaft quorum" in listeners.warnings[0]


@pytest.mark.parametrize(
    "listener",
    [
        "",
        "PLAINTEXT",
        "PLAINTEXT://h",
        "PLAINTEXT://h:",
        "://h:1",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://h:-1",
        "PLAINTEXT://a b:1",
        "PLAINTEXT://::1:9092",
        "1A://h:1",
    ],
)
def test_malformed_listeners(listener: str) -> None:
    (problem,) = problems_of([listener])
    assert repr(listener) in problem
    assert "must be NAME://host:port" in problem


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_no_client_can_connect_to_every_address(host: str) -> None:
    (problem,) = problems_of(["PLAINTEXT://:9092"], advertised=[f"PLAINTEXT://{host}:9092"])
    assert "which no client can do" in problem
    assert "PLAINTEXT://localhost:9092" in problem


def test_other_refusals() -> None:
    assert "is there twice" in problems_of(["PLAINTEXT://h:1", "PLAINTEXT://h:2"])[0]
    assert "both want port 1" in problems_of(["PLAINTEXT://h:1", "SSL://h:1"])[0]
    assert "Add INSIDE:PLAINTEXT" in problems_of(["INSIDE://h:1"])[0]
    assert "SSL is not in listeners (PLAINTEXT)" in problems_of(["PLAINTEXT://h:1"], advertised=["SSL://h:1"])[0]
    assert "Clients need one" in problems_of(["PLAINTEXT://h:1"], advertised=["PLAINTEXT://h:0"])[0]
    assert "It must be one of PLAINTEXT" in problems_of(["PLAINTEXT://h:1"], inter_broker_name="SSL")[0]
    assert "must be NAME:PROTOCOL" in problems_of(["A://h:1"], protocol_map=["A:TELNET", "B"])[0]
    with pytest.raises(ConfigError, match="names no listener for clients"):
        parse_listeners(["CONTROLLER://:1"], controller_names=["CONTROLLER"])


def test_two_families_may_share_a_port() -> None:
    listeners = parse_listeners(["PLAINTEXT://127.0.0.1:9092", "SSL://[::1]:9092"])
    assert len(listeners.bound) == 2
    assert problems_of(["PLAINTEXT://127.0.0.1:0", "PLAINTEXT://[::1]:0"])


def test_security_protocols_have_kafkas_numbers() -> None:
    assert [protocol.number for protocol in SecurityProtocol] == [0, 1, 2, 3]
    assert SecurityProtocol.SASL_SSL.encrypted
    assert SecurityProtocol.SASL_PLAINTEXT.authenticated
    assert not PLAINTEXT.encrypted
    assert not SecurityProtocol.SSL.authenticated


@given(st.lists(st.text(alphabet="PLAINTEXTSL:/[]0.129x", max_size=24), max_size=3))
def test_any_text_is_parsed_or_refused_with_a_config_error(listeners: list[str]) -> None:
    try:
        result = parse_listeners(listeners)
    except ConfigError as refusal:
        assert refusal.problems  # noqa: PT017 - most texts are refused
    else:
        assert isinstance(result, ListenerSet)
        assert not any(endpoint.everywhere for endpoint in result.advertised)
