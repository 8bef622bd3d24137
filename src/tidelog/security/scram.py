"""SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password, and neither sends it.

    client -> name, client's nonce
    server -> both nonces, salt, iterations
    client -> both nonces, client's proof
    server -> server's signature

Names and passwords are taken as UTF-8 without SASLprep, as Kafka and its clients do: preparing them here would lock out
users whose credentials were stored there.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import IntEnum

from tidelog.security.exchange import ExchangeFailed

NONCE_BYTES = 24
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
"""Kafka's own bounds. A server that asks for more could keep a client busy for as long as it likes."""

# "n": no channel binding; base64 of it comes back in the final message.
_BINDING = "n,,"
_BINDING_BASE64 = "biws"


class ScramMechanism(IntEnum):
    """By the numbers of the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism(self) -> str:
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def named(cls, mechanism: str) -> ScramMechanism:
        """ValueError when there is none of this name."""
        for each in cls:
            if each.mechanism == mechanism:
                return each
        raise ValueError(f"there is no SCRAM mechanism {mechanism!r}")


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """What a server derives its keys from: worth as much as the password, to whoever steals it."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """`stored` lets a server check a client, `server` lets it prove itself."""

    stored: bytes
    server: bytes


def keys_of(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    digest = mechanism.digest
    client_key = hmac.digest(salted, b"Client Key", digest)
    return ScramKeys(hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest))


class ScramClient:
    """The side that knows the password. `nonce` is chosen freely unless given."""

    def __init__(self, mechanism: ScramMechanism, username: str, password: str, nonce: str | None = None) -> None:
        self.done = False
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce if nonce is not None else secrets.token_urlsafe(NONCE_BYTES)
        self._first = f"n={_escaped(username)},r={self._nonce}"
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        return (_BINDING + self._first).encode()

    def answer(self, challenge: bytes) -> bytes:
        if self._signature is None:
            return self._prove(_text(challenge))
        self._verify(_text(challenge), self._signature)
        self.done = True
        return b""

    def _prove(self, challenge: str) -> bytes:
        nonce, salt, iterations = _challenge(challenge, self._nonce)
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        keys = keys_of(self._mechanism, salted)
        final = f"c={_BINDING_BASE64},r={nonce}"
        signed = f"{self._first},{challenge},{final}".encode()
        signature = hmac.digest(keys.stored, signed, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(keys.server, signed, digest)
        return f"{final},p={binascii.b2a_base64(proof, newline=False).decode()}".encode()

    def _verify(self, final: str, expected: bytes) -> None:
        if final.startswith("e="):
            raise ExchangeFailed(f"the broker refuses: {final[2:]}")
        if not final.startswith("v=") or not hmac.compare_digest(_base64(final[2:].partition(",")[0]), expected):
            raise ExchangeFailed(
                "the broker does not know the password either: is somebody else listening at its address?"
            )


def _challenge(challenge: str, our_nonce: str) -> tuple[str, bytes, int]:
    """Both nonces, the salt and the iterations out of the server's first message."""
    if challenge.startswith("e="):
        raise ExchangeFailed(f"the broker refuses: {challenge[2:]}")
    parts = challenge.split(",")
    if [part[:2] for part in parts[:3]] != ["r=", "s=", "i="]:
        raise ExchangeFailed("the broker's first SCRAM message has not the parts r, s and i")
    nonce, salt, iterations = parts[0][2:], _base64(parts[1][2:]), parts[2][2:]
    if not nonce.startswith(our_nonce) or len(nonce) == len(our_nonce):
        raise ExchangeFailed("the broker's nonce does not go on from ours")
    if not salt:
        raise ExchangeFailed("the broker's salt is empty")
    if not (iterations.isascii() and iterations.isdecimal() and len(iterations) <= 9):
        raise ExchangeFailed(f"the broker's iteration count is no number: {iterations[:20]!r}")
    if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ExchangeFailed(
            f"the broker wants {int(iterations)} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
        )
    return nonce, salt, int(iterations)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(token: bytes) -> str:
    try:
        return bytes(token).decode()
    except UnicodeDecodeError:
        raise ExchangeFailed("the broker's SCRAM message is not text") from None


def _base64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ExchangeFailed("the broker's SCRAM message holds base64 that cannot be read") from None
