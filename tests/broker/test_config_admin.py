"""Settings of topics and brokers: described, checked, changed, and effective at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import (
    EARLIEST,
    batch_of,
    bytes_of,
    create_topic,
    fetch_request,
    list_offset,
    produce,
    try_fetch,
    try_produce,
)

from tidelog.clock import SystemClock
from tidelog.config.definition import ConfigSource, ConfigType
from tidelog.errors import ErrorCode
from tidelog.records.record import iter_batches
from tidelog.testing import RawClient, eventually
from tidelog.wire.messages import alter_configs, incremental_alter_configs
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.testing import StartBroker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def try_describe(
    client: RawClient,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = client.call(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def settings(
    client: RawClient, kind: int, name: str, keys: Sequence[str] | None = None, *, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    result = try_describe(client, kind, name, keys, synonyms=True, version=version)
    assert result.error_code == ErrorCode.NONE, result
    return {config.name: config for config in result.configs}


def change(
    client: RawClient,
    kind: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> int:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    reply = client.call(request, version, incremental_alter_configs.IncrementalAlterConfigsResponse)
    (result,) = reply.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert result.error_code == ErrorCode.NONE or result.error_message
    return result.error_code


def replace(client: RawClient, kind: int, name: str, values: Mapping[str, str], *, version: int = 2) -> int:
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = client.call(request, version, alter_configs.AlterConfigsResponse).responses
    return result.error_code


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_s_settings_tell_where_they_come_from(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic, configs={"retention.ms": "5000"})
    found = settings(raw, TOPIC, topic, version=version)
    own, default = found["retention.ms"], found["max.message.bytes"]
    assert (own.value, own.config_source) == ("5000", ConfigSource.TOPIC)
    assert (default.value, default.config_source) == ("1048588", ConfigSource.DEFAULT)
    assert not own.read_only
    assert not own.is_sensitive


def test_synonyms_list_every_layer_that_has_a_say(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"retention.ms": "5000"})
    synonyms = [(entry.name, entry.source) for entry in settings(raw, TOPIC, topic)["retention.ms"].synonyms]
    assert synonyms[0] == ("retention.ms", ConfigSource.TOPIC)
    assert synonyms[-1][1] == ConfigSource.DEFAULT
    assert synonyms[-1][0].startswith("log.retention")


def test_types_and_documentation_come_with_version_3(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    result = try_describe(raw, TOPIC, topic, ["retention.ms", "cleanup.policy"], documentation=True, version=3)
    found = {config.name: config for config in result.configs}
    assert found["retention.ms"].config_type == ConfigType.LONG
    assert found["cleanup.policy"].config_type == ConfigType.LIST
    assert all(config.documentation for config in found.values())


def test_only_the_keys_asked_for_are_described(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert settings(raw, TOPIC, topic, ["segment.bytes", "retention.ms"]).keys() == {"segment.bytes", "retention.ms"}


def test_an_unknown_topic_has_no_settings(raw: RawClient, topic: str) -> None:
    assert try_describe(raw, TOPIC, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = change(raw, TOPIC, topic, ("retention.ms", SET, "1"))
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_broker_s_static_settings_are_described_and_secrets_are_hidden(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"num.partitions": "3", "ssl.key.password": "hunter2"})
    with RawClient(broker.port) as client:
        found = settings(client, BROKER, "0")
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == (
            "3",
            ConfigSource.STATIC_BROKER,
        )
        assert found["num.partitions"].read_only
        secret = found["ssl.key.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert all(entry.value is None for entry in secret.synonyms)
    assert "hunter2" not in broker.log_tail(1000)


@pytest.mark.parametrize("version", [0, 1])
def test_set_and_delete_change_single_keys(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic, configs={"retention.ms": "5000", "segment.bytes": "2000000"})
    assert change(raw, TOPIC, topic, ("retention.ms", SET, "7000"), version=version) == ErrorCode.NONE
    found = settings(raw, TOPIC, topic)
    assert (found["retention.ms"].value, found["segment.bytes"].value) == ("7000", "2000000")
    assert change(raw, TOPIC, topic, ("retention.ms", DELETE, None), version=version) == ErrorCode.NONE
    assert settings(raw, TOPIC, topic)["retention.ms"].config_source != ConfigSource.TOPIC


def test_append_and_subtract_change_lists(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)

    def policy() -> set[str]:
        return set(str(settings(raw, TOPIC, topic)["cleanup.policy"].value).split(","))

    assert change(raw, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert policy() == {"delete", "compact"}
    assert change(raw, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert policy() == {"compact"}
    code = change(raw, TOPIC, topic, ("retention.ms", APPEND, "1"))
    assert code in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG}, "retention.ms is no list"


def test_a_resource_changes_wholly_or_not_at_all(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"retention.ms": "5000"})
    code = change(raw, TOPIC, topic, ("retention.ms", SET, "1"), ("segment.bytes", SET, "nonsense"))
    assert code == ErrorCode.INVALID_CONFIG
    assert settings(raw, TOPIC, topic)["retention.ms"].value == "5000"


@pytest.mark.parametrize(
    ("key", "value"),
    [("no.such.key", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn"), ("min.insync.replicas", "0")],
)
def test_settings_are_checked_when_they_are_changed(raw: RawClient, topic: str, key: str, value: str) -> None:
    create_topic(raw, topic)
    assert change(raw, TOPIC, topic, (key, SET, value)) == ErrorCode.INVALID_CONFIG
    assert replace(raw, TOPIC, topic, {key: value}) == ErrorCode.INVALID_CONFIG


def test_a_key_twice_in_one_change_is_refused(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    code = change(raw, TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert code in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG}


def test_validate_only_checks_and_changes_nothing(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    assert change(raw, TOPIC, topic, ("retention.ms", SET, "1"), validate_only=True) == ErrorCode.NONE
    assert change(raw, TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert settings(raw, TOPIC, topic)["retention.ms"].config_source != ConfigSource.TOPIC


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_resets_what_it_does_not_name(raw: RawClient, topic: str, version: int) -> None:
    create_topic(raw, topic, configs={"retention.ms": "5000"})
    assert replace(raw, TOPIC, topic, {"segment.bytes": "2000000"}, version=version) == ErrorCode.NONE
    found = settings(raw, TOPIC, topic)
    assert found["segment.bytes"].value == "2000000"
    assert found["retention.ms"].config_source != ConfigSource.TOPIC


def test_a_changed_size_limit_holds_for_the_next_batch(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    batch = batch_of([bytes(10_000)])
    assert change(raw, TOPIC, topic, ("max.message.bytes", SET, "5000")) == ErrorCode.NONE
    assert try_produce(raw, topic, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert change(raw, TOPIC, topic, ("max.message.bytes", SET, "20000")) == ErrorCode.NONE
    assert produce(raw, topic, batch) == 0


def test_a_changed_timestamp_type_holds_for_the_next_batch(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    produce(raw, topic, batch_of([b"a"]))
    change(raw, TOPIC, topic, ("message.timestamp.type", SET, "LogAppendTime"))
    produce(raw, topic, batch_of([b"b"]))
    stored = iter_batches(bytes_of(try_fetch(raw, fetch_request(topic, 0))))
    assert [batch.header.log_append_time for batch in stored] == [False, True]


def test_a_lowered_retention_time_deletes_old_segments_soon(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
    for _ in range(4):
        produce(raw, topic, batch_of([bytes(700_000)]))
    assert list_offset(raw, topic, EARLIEST).offset == 0
    change(raw, TOPIC, topic, ("retention.ms", SET, "1000"))
    eventually(lambda: list_offset(raw, topic, EARLIEST).offset >= 3, "the old segments to be deleted")


def test_a_lowered_retention_size_deletes_the_oldest_segments_soon(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, configs={"segment.bytes": str(1 << 20)})
    now = SystemClock().now_ms()
    for _ in range(5):
        produce(raw, topic, batch_of([bytes(900_000)], timestamp_ms=now))
    change(raw, TOPIC, topic, ("retention.bytes", SET, "2000000"))
    eventually(lambda: list_offset(raw, topic, EARLIEST).offset == 2, "the log to shrink to its limit")


def test_a_broker_default_can_change_for_all_topics_at_once(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        batch = batch_of([bytes(10_000)])
        produce(client, "t", batch)
        assert change(client, BROKER, "", ("message.max.bytes", SET, "5000")) == ErrorCode.NONE
        assert try_produce(client, "t", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
        entry = settings(client, BROKER, "0")["message.max.bytes"]
        assert (entry.value, entry.config_source) == ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert change(client, BROKER, "0", ("message.max.bytes", SET, "50000")) == ErrorCode.NONE
        entry = settings(client, BROKER, "0")["message.max.bytes"]
        assert (entry.value, entry.config_source) == ("50000", ConfigSource.DYNAMIC_BROKER)
        produce(client, "t", batch)
        inherited = settings(client, TOPIC, "t")["max.message.bytes"]
        assert (inherited.value, inherited.config_source) == ("50000", ConfigSource.DYNAMIC_BROKER)


def test_settings_survive_a_restart(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs={"retention.ms": "5000"})
        change(client, TOPIC, "t", ("segment.bytes", SET, "2000000"))
        change(client, BROKER, "", ("message.max.bytes", SET, "5000"))
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        found = settings(client, TOPIC, "t")
        assert (found["retention.ms"].value, found["segment.bytes"].value) == ("5000", "2000000")
        assert found["max.message.bytes"].value == "5000"


@pytest.mark.parametrize(("key", "value"), [("log.dirs", "/elsewhere"), ("broker.id", "7"), ("num.partitions", "9")])
def test_a_read_only_broker_setting_cannot_be_changed_while_it_runs(raw: RawClient, key: str, value: str) -> None:
    assert change(raw, BROKER, "0", (key, SET, value)) in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG}


@pytest.mark.parametrize("name", ["7", "x"])
def test_the_settings_of_another_broker_are_not_to_be_had_here(raw: RawClient, name: str) -> None:
    assert try_describe(raw, BROKER, name).error_code == ErrorCode.INVALID_REQUEST
    assert change(raw, BROKER, name, ("message.max.bytes", SET, "5000")) == ErrorCode.INVALID_REQUEST
