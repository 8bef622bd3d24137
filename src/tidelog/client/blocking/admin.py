"""The admin without `await`. Written by scripts/blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client import admin as asynchronous
from tidelog.client.blocking.face import Face

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Literal, Unpack

    from tidelog.client.administration.access import Acl, AclFilter
    from tidelog.client.administration.brokers import Features
    from tidelog.client.administration.credentials import NewScramCredential, ScramCredential
    from tidelog.client.administration.group_reading import GroupDescription
    from tidelog.client.administration.groups import ListedGroup, MemberToRemove
    from tidelog.client.administration.placement import Reassignment, ReassignmentProgress
    from tidelog.client.administration.quotas import QuotaEntity
    from tidelog.client.administration.transactions import (
        HangingTransaction,
        ListedTransaction,
        PartitionProducer,
        TransactionDescription,
    )
    from tidelog.client.client_settings import ClientSettings
    from tidelog.client.config import ClientConfig
    from tidelog.client.descriptions import (
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        CreatedTopic,
        LogDir,
        NewTopic,
        TopicDescription,
    )
    from tidelog.client.metrics import ClientMetrics
    from tidelog.client.offsets import FoundOffset, OffsetAndMetadata, OffsetSpec
    from tidelog.client.outcomes import Outcomes
    from tidelog.security.scram import ScramMechanism
    from tidelog.types import Offset, TopicPartition


class Admin(Face[asynchronous.Admin]):
    """As the asyncio admin, from any thread, one at a time."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """-1 leaves the number to the broker's defaults."""
        return self._loop.run(
            self._client.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Outcomes[str, CreatedTopic]:
        return self._loop.run(self._client.create_topics(topics, validate_only=validate_only))

    def delete_topic(self, name: str) -> None:
        self._loop.run(self._client.delete_topic(name))

    def delete_topics(self, names: Iterable[str]) -> Outcomes[str, None]:
        """None: deleted."""
        return self._loop.run(self._client.delete_topics(names))

    def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name."""
        return self._loop.run(self._client.list_topics(include_internal=include_internal))

    def describe_topic(self, name: str) -> TopicDescription:
        return self._loop.run(self._client.describe_topic(name))

    def describe_topics(self, names: Iterable[str]) -> Outcomes[str, TopicDescription]:
        return self._loop.run(self._client.describe_topics(names))

    def add_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Grows the topic to `total` partitions. Records of a key may go elsewhere from then on.

        `assignments`: the brokers of each new partition, the preferred leader first.
        """
        self._loop.run(self._client.add_partitions(topic, total, assignments=assignments, validate_only=validate_only))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset | None]:
        """None: no record has the timestamp asked for, or a later one.

        With `committed_only`, a partition ends before its first transaction that is still open.
        """
        return self._loop.run(self._client.list_offsets(wanted, committed_only=committed_only))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Outcomes[TopicPartition, Offset]:
        """Deletes what lies before the offsets (-1: everything); gives each partition's new start."""
        return self._loop.run(self._client.delete_records(before))

    def describe_configs(self, resource: ConfigResource, keys: Sequence[str] | None = None) -> list[ConfigEntry]:
        """All settings of a topic, a broker or a group, or those named, by name."""
        return self._loop.run(self._client.describe_configs(resource, keys))

    def alter_configs(
        self,
        resource: ConfigResource,
        *,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes the settings named and leaves the others as they are; a deleted one goes back to its default.

        `append` and `subtract` are for settings that are lists, and take items separated by commas.
        """
        self._loop.run(
            self._client.alter_configs(
                resource, set=set, delete=delete, append=append, subtract=subtract, validate_only=validate_only
            )
        )

    def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Leaves the resource with these settings alone; whatever else was set goes back to its default."""
        self._loop.run(self._client.replace_configs(resource, configs, validate_only=validate_only))

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[Literal["classic", "consumer", "share", "streams"]] = ()
    ) -> list[ListedGroup]:
        """Of all brokers, by group id."""
        return self._loop.run(self._client.list_groups(states=states, types=types))

    def describe_group(self, group_id: str) -> GroupDescription:
        """Of either protocol. BrokerError(GROUP_ID_NOT_FOUND): there is no such group."""
        return self._loop.run(self._client.describe_group(group_id))

    def describe_groups(self, group_ids: Iterable[str]) -> Outcomes[str, GroupDescription]:
        return self._loop.run(self._client.describe_groups(group_ids))

    def delete_group(self, group_id: str) -> None:
        """Together with its offsets. It must have no members."""
        self._loop.run(self._client.delete_group(group_id))

    def delete_groups(self, group_ids: Iterable[str]) -> Outcomes[str, None]:
        """None: deleted."""
        return self._loop.run(self._client.delete_groups(group_ids))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, for all partitions or those named; those without a commit are left out.

        With `stable`, waits for transactions that are about to commit offsets.
        """
        return self._loop.run(self._client.list_group_offsets(group_id, partitions, stable=stable))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> Outcomes[TopicPartition, None]:
        """Moves a group that has no members, or none that reads these topics. None: done."""
        return self._loop.run(self._client.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """None: the group has no offset there any more. Topics that its members read are refused."""
        return self._loop.run(self._client.delete_group_offsets(group_id, partitions))

    def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
    ) -> Outcomes[MemberToRemove, None]:
        """Takes members out of a classic group, or (None) all of them. Those that live will join again."""
        return self._loop.run(self._client.remove_members(group_id, members, reason=reason))

    def alter_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> Outcomes[TopicPartition, None]:
        """Has partitions moved to these brokers, the preferred leader first; None stops a move and goes back.

        An outcome of None says that it has begun: `follow_reassignments` tells when it is over.
        """
        return self._loop.run(
            self._client.alter_reassignments(replicas, allow_replication_factor_change=allow_replication_factor_change)
        )

    def cancel_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Stops moves, all or those named; the partitions stay where they were."""
        return self._loop.run(self._client.cancel_reassignments(partitions))

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Moves that are under way, all or those of the partitions named."""
        return self._loop.run(self._client.list_reassignments(partitions))

    def follow_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, interval_s: float = 1.0
    ) -> Iterator[ReassignmentProgress]:
        """How far moves have come, those of the partitions named or all that are under way now; ends when they do.

        async for progress in admin.follow_reassignments():
            print(f"{progress.done} of {progress.total}")
        """
        return self._loop.iterate(self._client.follow_reassignments(partitions, interval_s=interval_s))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, kind: Literal["preferred", "unclean"] = "preferred"
    ) -> Outcomes[TopicPartition, bool]:
        """Has partitions, all or those named, led by their preferred replica, or (unclean) by any that lives, which
        loses records. False: nothing had to change.
        """
        return self._loop.run(self._client.elect_leaders(partitions, kind=kind))

    def describe_cluster(self) -> ClusterDescription:
        return self._loop.run(self._client.describe_cluster())

    def describe_features(self) -> Features:
        """By what a broker said when it was connected to."""
        return self._loop.run(self._client.describe_features())

    def unregister_broker(self, broker: int) -> None:
        """Has the cluster forget a broker that will not come back."""
        self._loop.run(self._client.unregister_broker(broker))

    def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> list[LogDir]:
        """The log directories of the brokers (all of them unless named), with the size of every partition in them."""
        return self._loop.run(self._client.describe_log_dirs(brokers))

    def move_to_log_dir(
        self, broker: int, path: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Has the broker move its replicas to another of its log directories. None: it has begun to."""
        return self._loop.run(self._client.move_to_log_dir(broker, path, partitions))

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Of all coordinators, by transactional id."""
        return self._loop.run(
            self._client.list_transactions(
                states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, pattern=pattern
            )
        )

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return self._loop.run(self._client.describe_transaction(transactional_id))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> Outcomes[str, TransactionDescription]:
        return self._loop.run(self._client.describe_transactions(transactional_ids))

    def describe_producers(self, partition: TopicPartition) -> list[PartitionProducer]:
        """Those that the partition's leader remembers, by producer id."""
        return self._loop.run(self._client.describe_producers(partition))

    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int
    ) -> list[HangingTransaction]:
        """Transactions whose producer has written nothing since `older_than_ms`, and which no coordinator knows of."""
        return self._loop.run(self._client.find_hanging_transactions(partitions, older_than_ms=older_than_ms))

    def abort_transaction(self, partition: TopicPartition, producer: PartitionProducer) -> None:
        """Writes the marker that nobody else will. Only for a transaction that hangs: its coordinator is not asked."""
        self._loop.run(self._client.abort_transaction(partition, producer))

    def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """The rules that match, or all. BrokerError(SECURITY_DISABLED): the broker has no authorizer."""
        return self._loop.run(self._client.describe_acls(matching))

    def create_acls(self, acls: Iterable[Acl]) -> Outcomes[Acl, None]:
        """None: it holds from now on. One that was there already is no error."""
        return self._loop.run(self._client.create_acls(acls))

    def delete_acls(self, matching: Iterable[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
        """For each filter the rules that it has deleted."""
        return self._loop.run(self._client.delete_acls(matching))

    def describe_client_quotas(
        self, matching: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of those who match, such as consumer_byte_rate; of everybody unless said otherwise.

        With `strict`, only of those who have no parts but the ones named.
        """
        return self._loop.run(self._client.describe_client_quotas(matching, strict=strict))

    def alter_client_quotas(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> Outcomes[QuotaEntity, None]:
        """Sets quotas by their keys, such as producer_byte_rate; the value None removes one."""
        return self._loop.run(self._client.alter_client_quotas(quotas, validate_only=validate_only))

    def describe_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Outcomes[str, tuple[ScramCredential, ...]]:
        """Which users have credentials, all of them or those named, by mechanism; never the secrets."""
        return self._loop.run(self._client.describe_scram_credentials(users))

    def alter_scram_credentials(
        self, *, set: Iterable[NewScramCredential] = (), delete: Iterable[tuple[str, ScramMechanism]] = ()
    ) -> Outcomes[str, None]:
        """By user, each of whom a call may name once. None: done."""
        return self._loop.run(self._client.alter_scram_credentials(set=set, delete=delete))

    def __init__(
        self,
        bootstrap: str | Sequence[str] | ClientConfig,
        config: ClientConfig | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Settings are keywords, a config, or both: keywords win."""
        super().__init__(lambda: asynchronous.Admin(bootstrap, config, **settings))

    def metrics(self) -> ClientMetrics:
        """What this client has done so far, counted."""
        return self._loop.call(self._client.metrics)
