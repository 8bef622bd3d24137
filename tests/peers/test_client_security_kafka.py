"""TLS and SASL with Apache Kafka: what its listeners demand, this client does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from admin_scenarios import becomes
from apache_kafka import KafkaProcess
from certificates import Authority, Certificate

from tidelog.client import (
    Admin,
    AuthenticationFailed,
    BrokersUnreachable,
    ClientConfig,
    Consumer,
    NewScramCredential,
    OffsetSpec,
    Producer,
    ScramMechanism,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("client-security-kafka")]

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"}
USER, PASSWORD = "alice, or=so", 'pass "word"'


class Kafka(NamedTuple):
    node: KafkaProcess
    authority: Authority
    client: Certificate


def broker_settings(authority: Authority, broker: Certificate) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.bothfile),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certfile),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        # Long enough for a slow machine to get through one, short enough that several fit into a test.
        "listener.name.short.connections.max.reauth.ms": "2000",
    }
    escaped = PASSWORD.replace('"', r"\"")
    for name in ("sasl", "both", "short"):
        plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="{escaped}";'
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = plain.replace("\\", "\\\\")
        for scram in MECHANISMS[1:]:
            settings[f"listener.name.{name}.{scram.lower()}.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
    return settings


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    broker = authority.issue("broker", "IP:127.0.0.1")
    settings = broker_settings(authority, broker)
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), settings, listeners=LISTENERS) as node:
        asyncio.run(create_users(node.bootstrap))
        yield Kafka(node, authority, authority.issue("client"))


async def create_users(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for mechanism in ScramMechanism:
            credential = NewScramCredential(USER, PASSWORD, mechanism, 4096)
            (await admin.alter_scram_credentials(set=[credential])).results()
        held = tuple((mechanism, 4096) for mechanism in ScramMechanism)
        await becomes({USER: held}, admin.describe_scram_credentials)


def sasl(mechanism: str, **settings: Any) -> dict[str, Any]:
    user = "plain" if mechanism == "PLAIN" else USER
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": PASSWORD, **settings}


async def round_trip(bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
    async with Admin(bootstrap, **settings) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
    value = bytes(range(256)) * 1000
    async with Producer(bootstrap, **settings) as producer:
        await producer.send_and_wait(topic, value)
    async with Consumer(bootstrap, **settings) as consumer:
        await consumer.assign_topics([topic], OffsetSpec.earliest())
        records = await consumer.poll()
        assert [record.value for record in records] == [value]


def test_tls_by_files(kafka: Kafka, topic: str) -> None:
    settings = {"security_protocol": "SSL", "ssl_cafile": str(kafka.authority.certfile)}
    asyncio.run(round_trip(kafka.node.bootstrap_of("TLS"), topic, settings))


def test_tls_with_certificates_on_both_sides_given_as_text(kafka: Kafka, topic: str) -> None:
    settings = {
        "security_protocol": "SSL",
        "ssl_truststore_certificates": kafka.authority.certfile.read_text(),
        "ssl_keystore_certificate_chain": kafka.client.certfile.read_text(),
        "ssl_keystore_key": kafka.client.keyfile.read_text(),
    }
    asyncio.run(round_trip(kafka.node.bootstrap_of("MUTUAL"), topic, settings))


def test_tls_refuses_strangers_on_either_side(kafka: Kafka, tmp_path: Any) -> None:
    stranger = Authority(tmp_path)

    async def scenario() -> None:
        tls, mutual = kafka.node.bootstrap_of("TLS"), kafka.node.bootstrap_of("MUTUAL")
        with pytest.raises(AuthenticationFailed, match="not trusted"):
            await Admin(tls, security_protocol="SSL", ssl_cafile=str(stranger.certfile)).start()
        with pytest.raises((AuthenticationFailed, BrokersUnreachable)):
            await Admin(mutual, security_protocol="SSL", ssl_cafile=str(kafka.authority.certfile)).start()
        with pytest.raises(BrokersUnreachable, match="security_protocol"):
            await Admin(tls).start()
        with pytest.raises((AuthenticationFailed, BrokersUnreachable), match="listen for TLS"):
            await Admin(kafka.node.bootstrap, security_protocol="SSL").start()

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl(kafka: Kafka, topic: str, mechanism: str) -> None:
    settings = sasl(mechanism, security_protocol="SASL_PLAINTEXT")
    asyncio.run(round_trip(kafka.node.bootstrap_of("SASL"), topic, settings))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_inside_tls(kafka: Kafka, topic: str, mechanism: str) -> None:
    settings = sasl(mechanism, security_protocol="SASL_SSL", ssl_cafile=str(kafka.authority.certfile))
    asyncio.run(round_trip(kafka.node.bootstrap_of("BOTH"), topic, settings))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(kafka: Kafka, mechanism: str) -> None:
    settings = sasl(mechanism, security_protocol="SASL_PLAINTEXT", sasl_password="guess")

    async def scenario() -> None:
        admin = Admin(kafka.node.bootstrap_of("SASL"), **settings)
        with pytest.raises(AuthenticationFailed, match="check sasl_username and sasl_password"):
            await admin.start()
        assert admin.metrics().authentications_failed == 1

    asyncio.run(scenario())


def test_settings_of_java_s_clients(kafka: Kafka, topic: str) -> None:
    escaped = PASSWORD.replace('"', r"\"")
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = ClientConfig.from_kafka(
        {
            "bootstrap.servers": kafka.node.bootstrap_of("BOTH"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(kafka.authority.certfile),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{login} required username="{USER}" password="{escaped}";',
        }
    )

    async def scenario() -> None:
        async with Admin(config) as admin:
            await admin.create_topic(topic, partitions=1, replication_factor=1)
            assert topic in {each.name for each in await admin.list_topics()}

    asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_on_the_same_connection(kafka: Kafka, mechanism: str) -> None:
    """Kafka closes a connection that goes on after its session is over: none may be lost here."""

    async def scenario() -> None:
        settings = sasl(mechanism, security_protocol="SASL_PLAINTEXT")
        async with Admin(kafka.node.bootstrap_of("SHORT"), **settings) as admin:
            while admin.metrics().authentications < 4:
                await asyncio.gather(*(admin.list_topics() for _ in range(5)))
            metrics = admin.metrics()
            assert metrics.connections_opened == 1
            assert metrics.requests["METADATA"].answered == metrics.requests["METADATA"].sent
            assert metrics.retries == 0

    asyncio.run(scenario())
