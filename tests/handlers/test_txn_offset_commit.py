"""TxnOffsetCommit: nothing is stored in a group's partition that the transaction's coordinator does not vouch for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from handler_cases import Around, around
from replica_cases import ORDERS_ID, A, role

from tidelog.broker.group_coordination import GroupCoordination
from tidelog.controller.image import OFFSETS_TOPIC, PartitionImage
from tidelog.errors import ErrorCode
from tidelog.handlers import offset_fetch, txn_offset_commit
from tidelog.handlers.handler import Waiting
from tidelog.records.control import Marker, MarkerType
from tidelog.types import TopicId, TopicPartition
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.replication.partition import Partition

PLACE = TopicPartition(OFFSETS_TOPIC, 0)
T_ID = TopicId(b"t" * 16)
PATIENCE_S = 30.0


class Vouching:
    """Stands for the transaction's coordinator, wherever it is."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, bool]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def coordinator(self) -> Any:
        raise AssertionError("nobody asks for it")

    async def ensure_topic(self) -> None:
        raise AssertionError("nobody asks for it")

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert list(partitions) == [PLACE]
        self.asked.append((transactional_id, producer_id, producer_epoch, add))
        await asyncio.sleep(0)
        self.meanwhile()
        return {PLACE: self.answer}


class Stage:
    """A broker that coordinates group g, of which nobody is a member."""

    def __init__(self, broker: Around) -> None:
        self.broker = broker
        self.vouching = Vouching()
        services = broker.services
        self.groups = GroupCoordination(broker.image, broker.settings, services.topics_on_demand, broker.clock)
        services.groups, services.transactions = self.groups, self.vouching
        alone = PartitionImage((A,), (A,), A, 0)
        broker.put_topic(OFFSETS_TOPIC, ORDERS_ID, alone)
        broker.put_topic("t", T_ID, alone)
        broker.node.take(role(A, 0, (A,), replicas=(A,), place=PLACE))

    @property
    def partition(self) -> Partition:
        return self.broker.node.partition(PLACE)

    async def coordinate(self) -> None:
        self.groups.leads(self.partition)
        runtime = self.groups.coordinator.at(0)
        assert runtime is not None
        for _ in range(100):  # there is nothing in it that takes time
            await asyncio.sleep(0)
        assert runtime.active

    async def commit(self, offset: int, *, epoch: int = 0, version: int = 5, group_id: str = "g") -> int:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id="mine",
            group_id=group_id,
            producer_id=7,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        reply = await self._ask(txn_offset_commit.HANDLER, request, version)
        code: int = reply.topics[0].partitions[0].error_code
        return code

    async def fetch(self, *, require_stable: bool = True) -> tuple[int, int]:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        reply = await self._ask(offset_fetch.HANDLER, request, 9)
        (partition,) = reply.groups[0].topics[0].partitions
        return partition.committed_offset, partition.error_code

    async def _ask(self, handler: Any, request: Any, version: int) -> Any:
        answer = self.broker.ask(handler, request, version, None)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if not isinstance(answer, Waiting):
            return answer
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.then(future.set_result)
        return await asyncio.wait_for(future, PATIENCE_S)

    def end(self, kind: MarkerType, epoch: int = 0) -> None:
        self.partition.append_marker(Marker(kind, 1), 7, epoch, self.broker.clock.now_ms(), transaction_version=1)
        self.groups.transaction_ended(0, 7, epoch, kind is MarkerType.COMMIT)


def on_stage(story: Callable[[Stage], Awaitable[None]], properties: dict[str, str] | None = None) -> None:
    async def main(broker: Around) -> None:
        stage = Stage(broker)
        await stage.coordinate()
        try:
            await story(stage)
        finally:
            stage.groups.coordinator.close()

    around(main, properties)


UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize(("kind", "after"), [(MarkerType.COMMIT, (5, 0)), (MarkerType.ABORT, (-1, 0))])
def test_an_offset_counts_when_its_transaction_is_committed(kind: MarkerType, after: tuple[int, int]) -> None:
    async def story(stage: Stage) -> None:
        assert await stage.commit(4) == ErrorCode.NONE
        assert await stage.commit(5) == ErrorCode.NONE
        assert await stage.fetch() == UNSTABLE
        assert await stage.fetch(require_stable=False) == (-1, ErrorCode.NONE)
        stage.end(kind)
        assert await stage.fetch() == after
        await stage.coordinate()
        assert await stage.fetch() == after, "loading leads to the same"

    on_stage(story)


@pytest.mark.parametrize(("version", "adds"), [(0, False), (3, False), (4, False), (5, True)])
def test_the_coordinator_is_asked_once_for_each_transaction(version: int, adds: bool) -> None:
    async def story(stage: Stage) -> None:
        for _ in range(2):
            assert await stage.commit(4, version=version) == ErrorCode.NONE
            assert await stage.commit(5, version=version) == ErrorCode.NONE
            stage.end(MarkerType.COMMIT)
        assert stage.vouching.asked == [("mine", 7, 0, adds)] * 2

    on_stage(story)


@pytest.mark.parametrize(
    ("answer", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 5, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_it_does_not_vouch_for_is_not_stored(answer: ErrorCode, version: int, told: ErrorCode) -> None:
    async def story(stage: Stage) -> None:
        stage.vouching.answer = answer
        assert await stage.commit(4, version=version) == told
        assert stage.partition.log.log_end_offset == 0
        assert await stage.fetch() == (-1, ErrorCode.NONE)

    on_stage(story)


def test_an_answer_that_a_marker_has_overtaken_does_not_count() -> None:
    async def story(stage: Stage) -> None:
        def end_and_forget() -> None:
            stage.end(MarkerType.ABORT)
            stage.vouching.answer = ErrorCode.TRANSACTION_ABORTABLE

        stage.vouching.meanwhile = lambda: stage.end(MarkerType.ABORT)
        assert await stage.commit(4) == ErrorCode.COORDINATOR_NOT_AVAILABLE, "it cannot go on like this for ever"
        stage.vouching.meanwhile = end_and_forget
        assert await stage.commit(4) == ErrorCode.TRANSACTION_ABORTABLE
        assert await stage.fetch() == (-1, ErrorCode.NONE)

    on_stage(story)


def test_the_coordinator_is_asked_again_when_a_marker_overtakes_its_answer() -> None:
    """It was that of the last transaction: who goes on at once often meets it."""

    async def story(stage: Stage) -> None:
        def end_once() -> None:
            stage.end(MarkerType.ABORT)
            stage.vouching.meanwhile = lambda: None

        stage.vouching.meanwhile = end_once
        assert await stage.commit(4) == ErrorCode.NONE
        assert len(stage.vouching.asked) == 2
        stage.end(MarkerType.COMMIT)
        assert await stage.fetch() == (4, ErrorCode.NONE)

    on_stage(story)


def test_a_producer_that_was_fenced_is_told_so_and_nobody_else_notices() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.commit(4, epoch=3) == ErrorCode.NONE
        assert await stage.commit(9, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        stage.end(MarkerType.COMMIT, epoch=3)
        assert await stage.fetch() == (4, ErrorCode.NONE)

    on_stage(story)


def test_verification_may_be_switched_off_for_those_who_announce_their_partitions() -> None:
    async def story(stage: Stage) -> None:
        stage.vouching.answer = ErrorCode.INVALID_TXN_STATE
        assert await stage.commit(4, version=4) == ErrorCode.NONE
        assert stage.vouching.asked == []
        stage.end(MarkerType.ABORT)
        assert await stage.commit(4, version=5) == ErrorCode.INVALID_TXN_STATE

    on_stage(story, {"transaction.partition.verification.enable": "false"})


def test_who_asks_in_vain_asks_nobody_else() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.commit(4, group_id="") == ErrorCode.INVALID_GROUP_ID
        stage.groups.coordinator.resign(0)
        assert await stage.commit(4) == ErrorCode.NOT_COORDINATOR
        assert stage.vouching.asked == []

    on_stage(story)
