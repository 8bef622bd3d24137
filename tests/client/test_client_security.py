"""What the security settings mean, and how a client authenticates, again and again if it must."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from certificates import Authority
from scripted_broker import HANG_UP, ScriptedBroker

from tidelog.client.authentication import authenticate
from tidelog.client.cluster import Cluster
from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from tidelog.client.errors import AuthenticationFailed, BrokersUnreachable, TransactionFailed
from tidelog.client.producer import Producer
from tidelog.client.security import Identity, Security
from tidelog.errors import ErrorCode
from tidelog.security.scram import ScramMechanism, keys_of, salted_password
from tidelog.types import TopicPartition
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"security_protocol": "TLS"}, "security_protocol is one of"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile: needs security_protocol SSL"),
        ({"sasl_password": "p"}, "sasl_password: needs security_protocol SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "needs a sasl_mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl_username and sasl_password"),
        ({**PLAIN, "sasl_mechanism": "GSSAPI"}, "GSSAPI"),
        ({**PLAIN, "sasl_username": "a\0b"}, "NUL"),
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "certificates to trust"),
        ({"security_protocol": "SSL", "ssl_truststore_certificates": "no PEM"}, "certificates to trust"),
        ({"security_protocol": "SSL", "ssl_certfile": "/nowhere/own.pem"}, "client's certificate"),
        ({"security_protocol": "SSL", "ssl_keyfile": "own.key"}, "without ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_keystore_key": "x"}, "go together"),
    ],
)
def test_settings_that_protect_nothing_are_refused_at_once(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Security.of(ClientConfig(**settings))


def test_certificates_are_taken_from_files_and_from_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("client")
    from_files = ClientConfig(
        security_protocol="SSL",
        ssl_cafile=str(authority.certfile),
        ssl_certfile=str(own.certfile),
        ssl_keyfile=str(own.keyfile),
        ssl_check_hostname=False,
    )
    from_text = ClientConfig(
        security_protocol="SSL",
        ssl_truststore_certificates=authority.certfile.read_text(),
        ssl_keystore_certificate_chain=own.certfile.read_text(),
        ssl_keystore_key=own.keyfile.read_text(),
    )
    contexts = [Security.of(config).tls for config in (from_files, from_text)]
    for context in contexts:
        assert context is not None
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert ["Test authority" in str(ca["subject"]) for ca in context.get_ca_certs()] == [True]
    assert [context.check_hostname for context in contexts if context is not None] == [False, True]
    ready = ssl.create_default_context()
    assert Security.of(ClientConfig(security_protocol="SSL", ssl_context=ready)).tls is ready


def test_no_secret_is_printed() -> None:
    config = ClientConfig(**PLAIN)
    assert "secret" not in repr(config)
    assert "secret" not in repr(Security.of(config))


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({"security.protocol": "sasl_ssl"}, {"security_protocol": "SASL_SSL"}),
        ({"ssl.ca.location": "a", "ssl.key.location": "b"}, {"ssl_cafile": "a", "ssl_keyfile": "b"}),
        ({"ssl.truststore.location": "a", "ssl.truststore.type": "PEM"}, {"ssl_cafile": "a"}),
        ({"ssl.keystore.location": "a", "ssl.key.password": "b"}, {"ssl_certfile": "a", "ssl_key_password": "b"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl_check_hostname": True}),
        ({"sasl.mechanisms": "SCRAM-SHA-512"}, {"sasl_mechanism": "SCRAM-SHA-512"}),
        ({"sasl.username": "u", "sasl.password": "p"}, {"sasl_username": "u", "sasl_password": "p"}),
        (
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                r"""username="al\"ice" password='s=c;r t';"""
            },
            {"sasl_username": 'al"ice', "sasl_password": "s=c;r t"},
        ),
        ({"reconnect.backoff.ms": "70"}, {"reconnect_backoff_ms": 70}),
    ],
)
def test_other_clients_names_are_understood(given: dict[str, Any], understood: dict[str, Any]) -> None:
    for kind in (ClientConfig, ProducerConfig, ConsumerConfig):
        config = kind.from_kafka(given)
        assert {name: getattr(config, name) for name in understood} == understood


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"ssl.keystore.type": "JKS"}, "only PEM"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "https or empty"),
        ({"sasl.jaas.config": "nonsense"}, "sasl.jaas.config is one entry"),
        ({"sasl.jaas.config": "a.Krb5LoginModule required username=x password=y;"}, "sasl.jaas.config is one entry"),
        ({"sasl.jaas.config": "a.PlainLoginModule required username=x;"}, "no username and password"),
    ],
)
def test_what_has_no_counterpart_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClientConfig.from_kafka(given)


class Guard:
    """The part of a broker that checks users, by PLAIN or SCRAM."""

    def __init__(self, broker: ScriptedBroker, mechanism: str = "PLAIN", *, lifetime_ms: int = 0) -> None:
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        self._said: list[str] = []
        broker.on(SaslHandshakeRequest, lambda request, _before: self.choose(request))
        broker.on(SaslAuthenticateRequest, lambda request, _before: self.check(bytes(request.auth_bytes)))

    def choose(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        known = request.mechanism == self.mechanism
        self._said = []
        code = 0 if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=[self.mechanism])

    def check(self, token: bytes) -> SaslAuthenticateResponse:
        if self.mechanism == "PLAIN":
            return self._reply(b"", good=token == b"\0alice\0secret")
        mechanism = ScramMechanism.named(self.mechanism)
        if not self._said:
            bare = token.decode().removeprefix("n,,")
            first = f"r={bare.partition(',r=')[2]}more,s={base64.b64encode(b'salt').decode()},i=4096"
            self._said = [bare, first]
            return self._reply(first.encode())
        keys = keys_of(mechanism, salted_password(mechanism, "secret", b"salt", 4096))
        bare, _, proof = token.decode().partition(",p=")
        signed = ",".join([*self._said, bare]).encode()
        signature = hmac.digest(keys.stored, signed, mechanism.digest)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        good = hashlib.new(mechanism.digest, client_key).digest() == keys.stored
        final = b"v=" + base64.b64encode(hmac.digest(keys.server, signed, mechanism.digest))
        return self._reply(final, good=good)

    def _reply(self, token: bytes, *, good: bool = True) -> SaslAuthenticateResponse:
        code = 0 if good else ErrorCode.SASL_AUTHENTICATION_FAILED
        message = None if good else "Authentication failed: no such user or password"
        return SaslAuthenticateResponse(
            error_code=code, error_message=message, auth_bytes=token, session_lifetime_ms=self.lifetime_ms
        )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_opens_every_connection(mechanism: Any) -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            Guard(broker, mechanism)
            config = ClientConfig(**{**PLAIN, **QUICK, "sasl_mechanism": mechanism})
            async with Cluster(broker.bootstrap, config) as cluster:
                await cluster.connection((await cluster.leader(TopicPartition("t", 0))).id)
                assert cluster.metrics().authentications == 2, "for asking around, and with the leader"
                order = [type(request) for request in broker.seen]
                assert order.index(SaslHandshakeRequest) < order.index(MetadataRequest)

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_once_and_not_tried_again(mechanism: Any) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Guard(broker, mechanism)
            config = ClientConfig(**{**PLAIN, **QUICK, "sasl_mechanism": mechanism, "sasl_password": "wr0ng"})
            cluster = Cluster(broker.bootstrap, config)
            with pytest.raises(AuthenticationFailed, match=r"user 'alice' with .* check sasl_username") as caught:
                await cluster.retrying("asking", cluster.start)
            assert "wr0ng" not in str(caught.value)
            assert len(broker.requests(SaslHandshakeRequest)) == 1
            assert cluster.metrics().authentications_failed == 1
            await broker.all_gone()

    asyncio.run(scenario())


def test_the_broker_s_mechanisms_are_named_when_ours_is_not_among_them() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Guard(broker, "SCRAM-SHA-512")
            with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-512 here"):
                await Cluster(broker.bootstrap, ClientConfig(**PLAIN)).start()

    asyncio.run(scenario())


def test_a_broker_that_never_comes_to_an_end_is_left() -> None:
    async def scenario() -> None:
        async def handshake(_request: SaslHandshakeRequest) -> SaslHandshakeResponse:
            return SaslHandshakeResponse(error_code=0, mechanisms=[])

        async def chatter(_request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"more")

        with pytest.raises(AuthenticationFailed, match="goes on after"):
            await authenticate(Identity("PLAIN", "u", "p"), handshake, chatter)

    asyncio.run(scenario())


def test_a_connection_lost_on_the_way_is_only_that() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Guard(broker)
            broker.on(SaslHandshakeRequest, lambda _request, _before: HANG_UP)
            with pytest.raises(BrokersUnreachable):
                await Cluster(broker.bootstrap, ClientConfig(**PLAIN)).start()

    asyncio.run(scenario())


def test_a_session_is_renewed_before_it_is_over_and_everything_stays_in_order() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            Guard(broker, lifetime_ms=1)
            async with Cluster(broker.bootstrap, ClientConfig(**PLAIN, **QUICK)) as cluster:
                sent: list[str] = []
                while cluster.metrics().authentications < 5:
                    names = [f"t{len(sent) + at}" for at in range(10)]
                    sent += names
                    await asyncio.gather(*(cluster.refresh([name]) for name in names))
            asked = [topic.name for request in broker.requests(MetadataRequest) for topic in request.topics or ()]
            assert asked == sent
            kinds = [type(request) for request in broker.seen]
            for at, kind in enumerate(kinds):
                if kind is SaslHandshakeRequest:
                    assert kinds[at + 1] is SaslAuthenticateRequest, "nothing may come in between"
            assert broker.requests(SaslHandshakeRequest)[4:]

    asyncio.run(scenario())


async def forever(act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await act()


def test_a_session_that_is_refused_ends_the_connection() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            guard = Guard(broker, lifetime_ms=1)
            async with Cluster(broker.bootstrap, ClientConfig(**PLAIN, **QUICK)) as cluster:
                guard.mechanism = "SCRAM-SHA-256"
                with pytest.raises(AuthenticationFailed):
                    await forever(lambda: cluster.refresh(["t"]))
                await broker.all_gone()
                assert cluster.metrics().connections_open == 0

    asyncio.run(scenario())


def test_records_for_a_leader_that_refuses_the_password_fail_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 2}) as broker, ScriptedBroker({"t": 2}, node_id=2) as leader:
            broker.peers, broker.leaders = [leader], {TopicPartition("t", 1): leader.node_id}
            Guard(broker)
            Guard(leader, "SCRAM-SHA-256")
            async with Producer(broker.bootstrap, **PLAIN, **QUICK) as producer:
                refused = await producer.send("t", b"refused", partition=1)
                stored = await producer.send("t", b"stored", partition=0)
                with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 here"):
                    await refused
                assert (await stored).offset == 0
                assert len(leader.requests(SaslHandshakeRequest)) == 1

    asyncio.run(scenario())


def test_records_fail_at_once_when_nobody_takes_the_password_any_more() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            guard = Guard(broker)
            async with Producer(broker.bootstrap, **PLAIN, **QUICK) as producer:
                assert (await producer.send_and_wait("t", b"stored")).offset == 0
                guard.mechanism = "SCRAM-SHA-256"
                broker.leaders[TopicPartition("t", 0)] = -1
                broker.on(ProduceRequest, lambda _request, _before: HANG_UP)
                broker.on(MetadataRequest, lambda _request, _before: HANG_UP)
                with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 here"):
                    await producer.send_and_wait("t", b"refused")

    asyncio.run(scenario())


def test_a_transaction_cannot_be_committed_when_a_leader_refuses_the_password() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({"t": 1}) as broker, ScriptedBroker({"t": 1}, node_id=2) as leader:
            broker.peers, broker.leaders = [leader], {TopicPartition("t", 0): leader.node_id}
            Guard(broker)
            Guard(leader, "SCRAM-SHA-256")
            async with Producer(broker.bootstrap, transactional_id="mine", **PLAIN, **QUICK) as producer:
                with pytest.raises(TransactionFailed, match="SCRAM-SHA-256 here"):
                    async with producer.transaction():
                        await producer.send("t", b"refused")
            (end,) = broker.requests(EndTxnRequest)
            assert not end.committed

    asyncio.run(scenario())
