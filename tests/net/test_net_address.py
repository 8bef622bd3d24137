from __future__ import annotations

from tidelog.net.address import Address


def test_addresses_print_as_people_write_them() -> None:
    assert str(Address("192.0.2.1", 9092)) == "192.0.2.1:9092"
    assert str(Address("2001:db8::1", 9092)) == "[2001:db8::1]:9092"


def test_an_ipv4_peer_of_an_ipv6_socket_is_the_same_peer() -> None:
    assert Address.of(("::ffff:192.0.2.1", 5, 0, 0)) == Address("192.0.2.1", 5)
    assert Address.of(("2001:db8::1", 5, 0, 0)) == Address("2001:db8::1", 5)


def test_a_unix_socket_has_no_address() -> None:
    assert Address.of("") == Address("local", 0)
