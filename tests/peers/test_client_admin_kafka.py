"""Admin against Apache Kafka: the same scenarios as against Tidelog, and what only Kafka serves so far."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import admin_scenarios
import pytest
from admin_scenarios import becomes
from apache_kafka import KafkaProcess

from tidelog.client import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Admin,
    ErrorCode,
    NewScramCredential,
    Outcomes,
    PatternType,
    Quota,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
)
from tidelog.client.administration.credentials import ScramCredential

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("client-admin-kafka")]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), SETTINGS) as node:
        yield node.bootstrap


@pytest.mark.parametrize(
    "scenario",
    [
        admin_scenarios.topics_and_partitions,
        admin_scenarios.settings_of_topics_and_brokers,
        admin_scenarios.members_are_removed,
        admin_scenarios.the_cluster_and_where_things_are,
        admin_scenarios.transactions_are_seen_and_aborted,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_kafka(scenario: Callable[[str, str], Awaitable[None]], kafka: str, topic: str) -> None:
    async def run() -> None:
        await scenario(kafka, topic)

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_kafka(protocol: str, kafka: str, topic: str) -> None:
    asyncio.run(admin_scenarios.a_group_that_reads(kafka, topic, protocol))


def test_access_rules_come_and_go(kafka: str, topic: str) -> None:
    read = Acl(ResourceType.TOPIC, topic, "User:alice", AclOperation.READ)
    deny = Acl(
        ResourceType.GROUP,
        f"{topic}-",
        "User:bob",
        AclOperation.ALL,
        AclPermission.DENY,
        "127.0.0.1",
        PatternType.PREFIXED,
    )
    wrong = Acl(ResourceType.CLUSTER, "another-cluster", "User:alice", AclOperation.ALTER)

    async def scenario() -> None:
        async with Admin(kafka) as admin:
            created = await admin.create_acls([read, deny, wrong])
            assert (created[read], created[deny]) == (None, None)
            assert created.errors[wrong].code == ErrorCode.INVALID_REQUEST
            of_topic = AclFilter(ResourceType.TOPIC, topic, pattern_type=PatternType.MATCH)
            await becomes([read], lambda: admin.describe_acls(of_topic))
            assert {read, deny} <= set(await admin.describe_acls())
            assert await admin.describe_acls(AclFilter(principal="User:bob")) == [deny]
            everything = AclFilter(principal="User:bob")
            deleted = await admin.delete_acls([AclFilter.exactly(read), everything])
            assert deleted.results() == {AclFilter.exactly(read): [read], everything: [deny]}
            await becomes([], admin.describe_acls)

    asyncio.run(scenario())


def test_quotas_come_and_go(kafka: str) -> None:
    alice = QuotaEntity(user="alice")
    by_client = QuotaEntity(user=Quota.DEFAULT, client_id="batch")
    bad = QuotaEntity(ip="no such host.example")

    async def scenario() -> None:
        async with Admin(kafka) as admin:
            altered = await admin.alter_client_quotas(
                {
                    alice: {"producer_byte_rate": 1_000_000, "consumer_byte_rate": 2.5e6},
                    by_client: {"request_percentage": 50},
                }
            )
            assert altered == {alice: None, by_client: None}
            refused = await admin.alter_client_quotas({bad: {"connection_creation_rate": 1}})
            assert list(refused.errors) == [bad]
            rates = {"producer_byte_rate": 1_000_000.0, "consumer_byte_rate": 2_500_000.0}
            await becomes({alice: rates}, lambda: admin.describe_client_quotas(alice, strict=True))
            assert set(await admin.describe_client_quotas(QuotaEntity(user=Quota.ANY))) == {alice, by_client}
            assert set(await admin.describe_client_quotas(QuotaEntity(user=Quota.DEFAULT))) == {by_client}
            await admin.alter_client_quotas({alice: {"producer_byte_rate": None}})
            rates.pop("producer_byte_rate")
            await becomes({alice: rates}, lambda: admin.describe_client_quotas(alice, strict=True))

    asyncio.run(scenario())


def test_passwords_come_and_go(kafka: str) -> None:
    async def scenario() -> None:
        async with Admin(kafka) as admin:
            done = await admin.alter_scram_credentials(
                set=[
                    NewScramCredential("carol", "secret"),
                    NewScramCredential("dave", "secret", ScramMechanism.SCRAM_SHA_256, iterations=4096),
                ],
                delete=[("nobody", ScramMechanism.SCRAM_SHA_512)],
            )
            assert (done["carol"], done["dave"]) == (None, None)
            assert done.errors["nobody"].code == ErrorCode.RESOURCE_NOT_FOUND
            carol = ScramCredential(ScramMechanism.SCRAM_SHA_512, 8192)
            dave = ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096)
            both: Outcomes[str, tuple[ScramCredential, ...]] = Outcomes({"carol": (carol,), "dave": (dave,)})
            await becomes(both, admin.describe_scram_credentials)
            await admin.alter_scram_credentials(delete=[("carol", ScramMechanism.SCRAM_SHA_512)])
            await becomes(Outcomes({"dave": (dave,)}), admin.describe_scram_credentials)
            missing = await admin.describe_scram_credentials(["carol"])
            assert missing.errors["carol"].code == ErrorCode.RESOURCE_NOT_FOUND

    asyncio.run(scenario())
