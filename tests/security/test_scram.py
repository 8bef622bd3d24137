from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.security.exchange import ExchangeFailed
from tidelog.security.scram import ScramClient, ScramMechanism, keys_of, salted_password

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512

# The example of RFC 7677, section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_client() -> ScramClient:
    return ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)


def test_the_example_of_the_rfc() -> None:
    client = rfc_client()
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not client.done
    assert client.answer(SERVER_FINAL) == b""
    assert client.done


class Server:
    """The other side, as RFC 5802 has it, knowing only what a server stores."""

    def __init__(self, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = 4096) -> None:
        self.digest = mechanism.digest
        self.keys = keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
        self.salt, self.iterations = salt, iterations
        self.username = ""
        self._said: list[str] = []

    def first(self, token: bytes) -> bytes:
        bare = token.decode().removeprefix("n,,")
        name, _, nonce = bare.partition(",r=")
        self.username = name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        reply = f"r={nonce}server,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        self._said = [bare, reply]
        return reply.encode()

    def final(self, token: bytes) -> bytes:
        bare, _, proof = token.decode().partition(",p=")
        signed = ",".join([*self._said, bare]).encode()
        signature = hmac.digest(self.keys.stored, signed, self.digest)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.digest, client_key).digest() != self.keys.stored:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(hmac.digest(self.keys.server, signed, self.digest))


@settings(max_examples=20)
@given(
    mechanism=st.sampled_from(ScramMechanism),
    username=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    password=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    salt=st.binary(min_size=1, max_size=32),
)
def test_whoever_knows_the_password_is_believed(
    mechanism: ScramMechanism, username: str, password: str, salt: bytes
) -> None:
    server, client = Server(mechanism, password, salt), ScramClient(mechanism, username, password)
    assert client.answer(server.final(client.answer(server.first(client.begin())))) == b""
    assert client.done
    assert server.username == username


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_wrong_password_is_not(mechanism: ScramMechanism) -> None:
    server, client = Server(mechanism, "right", b"salt"), ScramClient(mechanism, "u", "wrong")
    with pytest.raises(ExchangeFailed, match="invalid-proof"):
        client.answer(server.final(client.answer(server.first(client.begin()))))
    assert not client.done


def test_a_broker_that_only_pretends_is_found_out() -> None:
    client = rfc_client()
    client.answer(SERVER_FIRST)
    forged = b"v=" + base64.b64encode(bytes(32))
    with pytest.raises(ExchangeFailed, match="somebody else"):
        client.answer(forged)
    assert not client.done


@pytest.mark.parametrize(
    ("challenge", "complaint"),
    [
        (b"", "parts"),
        (b"e=unknown-user", "unknown-user"),
        (b"m=ext,r=x,s=YQ==,i=4096", "parts"),
        (SERVER_FIRST.replace(b"rOprNGfw", b"rOprNGfx"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=YQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "salt"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=%%,i=4096", "base64"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=YQ==,i=many", "no number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=YQ==,i=1", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=YQ==,i=999999999", "iterations"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_a_challenge_that_breaks_the_rules_is_refused(challenge: bytes, complaint: str) -> None:
    with pytest.raises(ExchangeFailed, match=complaint):
        rfc_client().answer(challenge)


@given(st.binary(max_size=200))
def test_no_bytes_of_a_broker_do_worse_than_fail_the_exchange(challenge: bytes) -> None:
    with pytest.raises(ExchangeFailed):
        rfc_client().answer(challenge)


def test_nonces_differ() -> None:
    assert ScramClient(SHA_512, "u", "p").begin() != ScramClient(SHA_512, "u", "p").begin()


def test_mechanisms_go_by_their_names() -> None:
    assert ScramMechanism.named("SCRAM-SHA-512") is SHA_512
    assert SHA_256.mechanism == "SCRAM-SHA-256"
    with pytest.raises(ValueError, match="SCRAM-SHA-1"):
        ScramMechanism.named("SCRAM-SHA-1")
