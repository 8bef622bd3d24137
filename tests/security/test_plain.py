from __future__ import annotations

import pytest

from tidelog.security.exchange import ExchangeFailed
from tidelog.security.plain import PlainClient


def test_name_and_password_go_out_as_one_token() -> None:
    """The shape of RFC 4616: no authorization identity, NUL, name, NUL, password."""
    client = PlainClient("tim", "tanstaaftanstaaf")
    assert client.begin() == b"\0tim\0tanstaaftanstaaf"
    assert not client.done
    assert client.answer(b"") == b""
    assert client.done


def test_what_would_shift_the_parts_is_refused() -> None:
    for name, password in [("a\0b", "p"), ("u", "p\0q")]:
        with pytest.raises(ValueError, match="NUL"):
            PlainClient(name, password)


def test_a_broker_that_goes_on_is_not_understood() -> None:
    client = PlainClient("u", "p")
    with pytest.raises(ExchangeFailed):
        client.answer(b"more")
    assert not client.done
