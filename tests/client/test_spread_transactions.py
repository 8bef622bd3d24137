"""Transactions that several processes write to, and those that one prepares and another ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from committed_reader import committed_values

from tidelog.client import (
    Admin,
    InvalidState,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    ProducerStopped,
    TopicPartition,
    TransactionFailed,
    TransactionHandle,
    TransactionPart,
)
from tidelog.client.transactions import line
from tidelog.client.transactions.deciding import TransactionDecider, adopt_prepared, end_prepared
from tidelog.testing import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.testing import StartBroker

WRITER = Path(__file__).resolve().parent / "spread_writer.py"
NEWER, OLDER = "newer rules", "older rules"


@pytest.fixture(scope="module")
def two_phases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that lets producers prepare transactions which no timeout aborts."""
    with BrokerProcess(
        tmp_path_factory.mktemp("two-phases"), {"transaction.two.phase.commit.enable": "true"}
    ) as process:
        yield process


@pytest.fixture(params=[NEWER, OLDER])
def at(request: pytest.FixtureRequest, two_phases: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == OLDER:
        monkeypatch.setattr(line, "TRANSACTION_VERSION", "a feature that no broker has")
    return two_phases.bootstrap


@pytest.fixture
def name() -> str:
    return f"transactional-{uuid.uuid4().hex[:12]}"


async def create(at: str, topic: str, partitions: int = 1) -> list[TopicPartition]:
    async with Admin(at) as admin:
        await admin.create_topic(topic, partitions=partitions)
    return [TopicPartition(topic, number) for number in range(partitions)]


def write_elsewhere(at: str, handle: TransactionHandle, count: int) -> TransactionPart:
    done = subprocess.run(
        [sys.executable, str(WRITER), at, str(count)],
        input=handle.to_json(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return TransactionPart.from_json(done.stdout)


def test_several_processes_write_to_one_transaction(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        places = await create(at, topic, 4)
        async with Producer(at, transactional_id=name, linger_ms=0) as owner:
            for round_ in range(3):
                await owner.begin()
                handles = [await owner.transaction_handle(places[:2]), await owner.transaction_handle(places[2:3])]
                await owner.send(topic, b"own", partition=3)
                parts = await asyncio.gather(
                    *(asyncio.to_thread(write_elsewhere, at, handle, 20) for handle in handles)
                )
                for part in parts:
                    owner.include(part)
                await owner.send(topic, b"after", partition=0)
                await (owner.abort() if round_ == 1 else owner.commit())

    asyncio.run(scenario())
    written = [[b"%d-%d" % (partition, number) for number in range(20)] for partition in range(3)]
    zero = [*written[0], b"after"]
    assert committed_values(at, topic, 4) == [*zero * 2, *written[1] * 2, *written[2] * 2, b"own", b"own"]


def test_a_writer_keeps_to_its_partitions_and_ends_nothing(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        places = await create(at, topic, 2)
        async with Producer(at, transactional_id=name, linger_ms=0) as owner:
            await owner.begin()
            handle = await owner.transaction_handle(places[:1])
            with pytest.raises(InvalidState, match="lent"):
                await owner.send(topic, b"x", partition=0)
            with pytest.raises(InvalidState, match="take every part back"):
                await owner.commit()
            async with Producer.join_transaction(at, handle, linger_ms=0) as writer:
                await writer.send(topic, b"in", partition=0)
                with pytest.raises(InvalidState, match="not among those"):
                    await writer.send(topic, b"out", partition=1)
                for call in (writer.commit, writer.abort, writer.begin, writer.prepare):
                    with pytest.raises(InvalidState):
                        await call()
                owner.include(await writer.leave())
            await owner.commit()

    asyncio.run(scenario())
    assert committed_values(at, topic, 2) == [b"in"]


def test_a_writer_that_was_lost_cannot_write_after_the_abort(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        places = await create(at, topic, 2)
        async with Producer(at, transactional_id=name, linger_ms=0) as owner:
            await owner.begin()
            handle = await owner.transaction_handle(places[:1])
            async with Producer.join_transaction(at, handle, linger_ms=0) as lost:
                await lost.send_and_wait(topic, b"lost", partition=0)
                await owner.abort()
                async with owner.transaction():
                    await owner.send(topic, b"again", partition=0)
                late = await lost.send(topic, b"late", partition=0)
                await asyncio.wait([late])
                assert late.exception() is not None
                with pytest.raises((TransactionFailed, ProducerStopped)):
                    await lost.leave()

    asyncio.run(scenario())
    assert committed_values(at, topic, 2) == [b"again"]


def test_a_part_in_which_nothing_was_written_changes_nothing(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        places = await create(at, topic)
        async with Producer(at, transactional_id=name) as owner:
            for _ in range(2):
                await owner.begin()
                handle = await owner.transaction_handle(places)
                async with Producer.join_transaction(at, handle) as writer:
                    owner.include(await writer.leave())
                await owner.commit()
            async with owner.transaction():
                await owner.send(topic, b"one")

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"one"]


def test_one_prepares_and_another_decides(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        prepared: list[PreparedTransaction] = []
        for attempt in range(4):
            async with Producer(at, transactional_id=f"{name}-{attempt}", linger_ms=0) as task:
                await task.begin()
                if attempt < 3:
                    await task.send(topic, b"%d" % attempt)
                prepared.append(await task.prepare())
                with pytest.raises(InvalidState, match="prepared"):
                    await task.send(topic, b"too late")
        told = [PreparedTransaction.from_json(each.to_json()) for each in prepared]
        for _ in range(2):  # whoever is not sure decides again
            await end_prepared(at, [told[0], told[2], told[3]], commit=True)
            await end_prepared(at, [told[1]], commit=False)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"0", b"2"]


def test_what_was_decided_stays_so(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as task:
            await task.begin()
            await task.send(topic, b"decided")
            prepared = await task.prepare()
        await end_prepared(at, [prepared], commit=True)
        with pytest.raises(ProducerStopped):
            await end_prepared(at, [prepared], commit=False)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"decided"]


def test_a_prepared_transaction_of_an_attempt_that_was_replaced_cannot_be_committed(
    at: str, topic: str, name: str
) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as task:
            await task.begin()
            await task.send(topic, b"first attempt")
            prepared = await task.prepare()
        async with Producer(at, transactional_id=name, linger_ms=0) as again, again.transaction():
            await again.send(topic, b"second attempt")
        with pytest.raises(ProducerFenced):
            await end_prepared(at, [prepared], commit=True)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"second attempt"]


@pytest.mark.parametrize("decided", [True, False])
def test_who_comes_back_finds_what_it_had_prepared(at: str, topic: str, name: str, *, decided: bool) -> None:
    async def scenario() -> None:
        await create(at, topic)
        settings = {"transactional_id": name, "transaction_two_phase_commit_enable": True}
        async with Producer(at, linger_ms=0, **settings) as first:  # type: ignore[arg-type]
            async with first.transaction():
                await first.send(topic, b"before")
            await first.begin()
            await first.send(topic, b"prepared")
            note = await first.prepare()
        async with Producer(at, keep_prepared=True, linger_ms=0, **settings) as second:  # type: ignore[arg-type]
            found = second.prepared
            assert found is not None
            assert found.identity == note.identity
            with pytest.raises(InvalidState):
                await second.begin()
            assert await second.complete(note if decided else note._replace(epoch=99)) is decided
            assert second.prepared is None
            async with second.transaction():
                await second.send(topic, b"after")

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"before", *([b"prepared"] if decided else []), b"after"]


def test_two_phases_must_be_allowed(fresh_broker: StartBroker, name: str) -> None:
    broker = fresh_broker({"transaction.two.phase.commit.enable": "false"})

    async def scenario() -> None:
        producer = Producer(broker.bootstrap, transactional_id=name, transaction_two_phase_commit_enable=True)
        with pytest.raises(ProducerStopped, match=r"transaction\.two\.phase"):
            await producer.start()

    asyncio.run(scenario())


def test_a_prepared_transaction_outlives_its_broker(fresh_broker: StartBroker, topic: str, name: str) -> None:
    async def scenario(broker: BrokerProcess) -> None:
        await create(broker.bootstrap, topic)
        async with Producer(
            broker.bootstrap, transactional_id=name, transaction_two_phase_commit_enable=True, linger_ms=0
        ) as task:
            await task.begin()
            await task.send(topic, b"survives")
            prepared = await task.prepare()
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await end_prepared(broker.bootstrap, [prepared], commit=True)

    broker = fresh_broker({"transaction.two.phase.commit.enable": "true"})
    asyncio.run(scenario(broker))
    assert committed_values(broker.bootstrap, topic) == [b"survives"]


# --- taken over by whoever decides ---


async def prepare(at: str, topic: str, name: str, *values: bytes, timeout_ms: int = 60_000) -> PreparedTransaction:
    async with Producer(at, transactional_id=name, linger_ms=0, transaction_timeout_ms=timeout_ms) as task:
        await task.begin()
        for value in values:
            await task.send(topic, value)
        return await task.prepare()


def test_what_is_adopted_waits_for_its_end(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        kept = await prepare(at, topic, f"{name}-kept", b"kept", timeout_ms=1000)
        dropped = await prepare(at, topic, f"{name}-dropped", b"dropped", timeout_ms=1000)
        empty = await prepare(at, topic, f"{name}-empty")
        witness = await prepare(at, topic, f"{name}-witness", b"times out", timeout_ms=1000)
        adopted = await adopt_prepared(at, [kept, empty, dropped])
        assert [each.transactional_id for each in adopted] == [
            f"{name}-{each}" for each in ("kept", "empty", "dropped")
        ]
        async with Admin(at) as admin:
            while (await admin.describe_transaction(witness.transactional_id)).state == "Ongoing":
                pass
        for _ in range(2):
            await end_prepared(at, adopted[:2], commit=True)
            await end_prepared(at, adopted[2:], commit=False)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"kept"]


def test_who_prepared_it_has_no_say_any_more(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as task:
            await task.begin()
            await task.send(topic, b"decided elsewhere")
            prepared = await task.prepare()
            adopted = await adopt_prepared(at, [prepared])
            with pytest.raises(ProducerFenced):
                await task.abort()
        with pytest.raises(ProducerFenced):
            await end_prepared(at, [prepared], commit=False)
        await end_prepared(at, adopted, commit=True)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"decided elsewhere"]


def test_adopting_can_be_repeated_until_it_is_answered(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        prepared = await prepare(at, topic, name, b"once")
        await adopt_prepared(at, [prepared])
        await end_prepared(at, await adopt_prepared(at, [prepared]), commit=True)

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"once"]


def test_what_is_gone_cannot_be_adopted(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        ended = await prepare(at, topic, f"{name}-ended", b"ended")
        await end_prepared(at, [ended], commit=True)
        earlier = await prepare(at, topic, f"{name}-other", b"earlier")
        await prepare(at, topic, f"{name}-other", b"later")
        for gone in (ended, earlier):
            with pytest.raises(ProducerFenced, match="there no more"):
                await adopt_prepared(at, [gone])

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"ended"]


def test_a_producer_goes_on_when_others_have_ended_what_it_prepared(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        async with Producer(at, transactional_id=name, linger_ms=0) as task:
            for value in (b"first", b"second"):
                await task.begin()
                await task.send(topic, value)
                await end_prepared(at, await adopt_prepared(at, [await task.prepare()]), commit=True)
                await task.renew()
            await task.begin()
            await task.send(topic, b"nobody ended it")
            await task.prepare()
            await task.renew()
            async with task.transaction():
                await task.send(topic, b"last")

    asyncio.run(scenario())
    assert committed_values(at, topic) == [b"first", b"second", b"last"]


def test_whatever_is_open_can_be_fenced(at: str, topic: str, name: str) -> None:
    async def scenario() -> None:
        await create(at, topic)
        prepared = await prepare(at, topic, f"{name}-0", b"prepared")
        (adopted,) = await adopt_prepared(at, [await prepare(at, topic, f"{name}-1", b"adopted")])
        async with TransactionDecider(at) as decider:
            await decider.fence([f"{name}-{number}" for number in range(3)])
            for each in (prepared, adopted):
                with pytest.raises(ProducerFenced):
                    await decider.end([each], commit=True)

    asyncio.run(scenario())
    assert committed_values(at, topic) == []
