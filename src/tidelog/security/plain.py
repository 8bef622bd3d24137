"""SASL PLAIN (RFC 4616): user name and password as they are, so only safe inside TLS."""

from __future__ import annotations

from tidelog.security.exchange import ExchangeFailed

MECHANISM = "PLAIN"


class PlainClient:
    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise ValueError("with PLAIN neither user name nor password can hold a NUL character")
        self._token = f"\0{username}\0{password}".encode()
        self.done = False

    def begin(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes:
        if challenge:
            raise ExchangeFailed("the broker goes on after a PLAIN exchange is over")
        self.done = True
        return b""
