"""Every area of Admin against a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import admin_scenarios
import pytest

from tidelog.client import Admin, BrokerError, ErrorCode, NotSupported
from tidelog.client.administration.access import Acl, AclFilter, AclOperation, ResourceType
from tidelog.client.administration.credentials import NewScramCredential
from tidelog.client.administration.quotas import Quota, QuotaEntity
from tidelog.client.outcomes import Outcomes
from tidelog.security.scram import ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SCENARIOS = [
    admin_scenarios.topics_and_partitions,
    admin_scenarios.settings_of_topics_and_brokers,
    admin_scenarios.members_are_removed,
    admin_scenarios.the_cluster_and_where_things_are,
    admin_scenarios.transactions_are_seen_and_aborted,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_tidelog(scenario: Callable[[str, str], Awaitable[None]], bootstrap: str, topic: str) -> None:
    async def run() -> None:
        await scenario(bootstrap, topic)

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(protocol: str, bootstrap: str, topic: str) -> None:
    asyncio.run(admin_scenarios.a_group_that_reads(bootstrap, topic, protocol))


async def move_somewhere(admin: Admin) -> None:
    broker = (await admin.describe_cluster()).brokers[0]
    await admin.move_to_log_dir(broker.id, "/elsewhere", [])


ALICE = Acl(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
NOT_SERVED: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "DESCRIBE_ACLS": lambda admin: admin.describe_acls(),
    "CREATE_ACLS": lambda admin: admin.create_acls([ALICE]),
    "DELETE_ACLS": lambda admin: admin.delete_acls([AclFilter.exactly(ALICE)]),
    "DESCRIBE_CLIENT_QUOTAS": lambda admin: admin.describe_client_quotas(),
    "ALTER_CLIENT_QUOTAS": lambda admin: admin.alter_client_quotas(
        {QuotaEntity(user="alice"): {"producer_byte_rate": 1e6}}
    ),
    "DESCRIBE_USER_SCRAM_CREDENTIALS": lambda admin: admin.describe_scram_credentials(),
    "ALTER_USER_SCRAM_CREDENTIALS": lambda admin: admin.alter_scram_credentials(
        set=[NewScramCredential("alice", "secret")]
    ),
    "ALTER_REPLICA_LOG_DIRS": move_somewhere,
}


@pytest.mark.parametrize("api", NOT_SERVED)
def test_what_the_broker_does_not_serve_is_told_at_once(api: str, bootstrap: str) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            with pytest.raises(NotSupported, match=f"does not offer {api}"):
                await NOT_SERVED[api](admin)

    asyncio.run(scenario())


def test_several_refusals_are_raised_as_one() -> None:
    refused = BrokerError(ErrorCode.INVALID_REQUEST, "no")
    outcomes: Outcomes[str, int] = Outcomes({"a": 1, "b": refused, "c": BrokerError(ErrorCode.NONE, "also no")})
    assert set(outcomes.errors) == {"b", "c"}
    assert outcomes.result("a") == 1
    with pytest.raises(ExceptionGroup, match="2 of 3 were refused") as caught:
        outcomes.results()
    assert refused in caught.value.exceptions
    assert Outcomes({"a": 1}).results() == {"a": 1}


def test_values_that_make_no_sense_are_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ValueError, match="iterations"):
        NewScramCredential("u", "p", ScramMechanism.SCRAM_SHA_256, iterations=10)
    assert "hunter2" not in repr(NewScramCredential("u", "hunter2"))

    async def scenario() -> None:
        admin = Admin("127.0.0.1:9", client_id="x")
        assert admin.config.client_id == "x"
        with pytest.raises(ValueError, match=r"Quota\.ANY is for questions"):
            await admin.alter_client_quotas({QuotaEntity(user=Quota.ANY): {"producer_byte_rate": 1}})
        with pytest.raises(ValueError, match="preferred or unclean"):
            await admin.elect_leaders(kind="quick")  # type: ignore[arg-type]

    asyncio.run(scenario())


def test_rules_and_entities_are_named_for_people() -> None:
    assert str(ALICE) == "ALLOW User:alice READ on TOPIC t (LITERAL) from *"
    assert str(QuotaEntity(user="alice", client_id=Quota.DEFAULT)) == "user alice, client-id default"
