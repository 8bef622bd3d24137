"""Producers of both transaction.versions, zombies among them, with lost answers, late writes, markers in any order,
coordinators that are lost and time that passes as it likes.

- what a producer wrote in one transaction is committed everywhere or nowhere, and as it was told
- who was replaced can do nothing
- epochs never go back
- an outcome that was decided never changes, and nothing is left open once all markers are written
- the records alone, all of them or only the newest of each key, give the same state again
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transaction_driver import A0, A1, B0, TIMEOUT_MS, TV1, TV2, TransactionDriver

from tidelog.coordinators.transactions.config import TransactionConfig
from tidelog.coordinators.transactions.shard import SendMarkers
from tidelog.coordinators.transactions.states import TransactionState as S
from tidelog.coordinators.transactions.transaction import LAST_EPOCH_GIVEN, NOBODY, Identity
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.types import TopicPartition

IDS = ("x", "y", "z")
PLACES = (A0, A1, B0)
KINDS = (("x", TV2, False), ("x", TV2, True), ("x", TV1, False), ("y", TV2, False), ("z", TV1, False))
"""Of producers: transactional id, transaction.version, whether it takes part in two-phase commits."""

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


@dataclass(eq=False)
class Story:
    """One transaction, as the producer who began it sees it."""

    identity: Identity = NOBODY
    wants: str | None = None
    """How it is to be ended, once that was asked for."""
    told: str | None = None
    """How it ended, as far as the producer was told."""
    added: set[TopicPartition] = field(default_factory=set)
    """What a producer of old has put into it."""
    writes: list[tuple[TopicPartition, list[str]]] = field(default_factory=list)
    """Where something was written, each with what became of it, which the partition's log fills in."""


@dataclass(eq=False)
class Client:
    name: str
    version: int
    two_phase: bool
    identity: Identity = NOBODY
    story: Story = field(default_factory=Story)
    unanswered: bool = False
    """The answer to the last end was lost."""


@dataclass(eq=False)
class Log:
    """One partition, as far as transactions go."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[list[str]]] = field(default_factory=dict)
    """By producer id: what was written and not yet ended."""

    def write(self, who: Identity) -> list[str] | None:
        if who.epoch < self.epochs.get(who.producer_id, -1):
            return None
        self.epochs[who.producer_id] = who.epoch
        fate = [OPEN]
        self.open.setdefault(who.producer_id, []).append(fate)
        return fate

    def in_transaction(self, who: Identity) -> bool:
        return who.producer_id in self.open and self.epochs[who.producer_id] == who.epoch

    def mark(self, sent: SendMarkers) -> None:
        if sent.producer_epoch < self.epochs.get(sent.producer_id, -1):
            return
        self.epochs[sent.producer_id] = sent.producer_epoch
        for fate in self.open.pop(sent.producer_id, []):
            fate[0] = COMMITTED if sent.committed else ABORTED


clients = st.integers(0, len(KINDS) - 1)
places = st.sampled_from(PLACES)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver(TransactionConfig(two_phase_commit_enable=True))
        self.clients = [Client(*kind) for kind in KINDS]
        self.logs = {place: Log() for place in PLACES}
        self.stories: list[Story] = []
        self.newest: dict[str, Identity] = {}
        """The newest identity that anybody was told."""
        self.reigns: dict[str, Identity] = {}
        """What the last producer was given who took the id over: everybody below is replaced."""
        self.outcomes: dict[tuple[int, int], bool] = {}

    # --- producers ---

    def _learn(self, client: Client, told: Identity) -> None:
        newest = self.newest.get(client.name, NOBODY)
        assert told >= newest, "producer ids and epochs only rise"
        assert told.epoch <= LAST_EPOCH_GIVEN
        self.newest[client.name] = told
        client.identity = told

    def _is_replaced(self, client: Client) -> bool:
        return client.identity == NOBODY or client.identity < self.reigns.get(client.name, NOBODY)

    def _begin(self, client: Client) -> None:
        client.story = Story(client.identity)
        client.unanswered = False
        self.stories.append(client.story)

    def _prepared_by(self, identity: Identity) -> Story:
        """The story that goes on under another name, and is no longer judged under the old one."""
        found = next(story for story in reversed(self.stories[:-1]) if story.identity == identity)
        self.stories.remove(found)
        return found

    @rule(number=clients, says_who=st.booleans(), keeps=st.booleans())
    def initialise(self, number: int, *, says_who: bool, keeps: bool) -> None:
        client = self.clients[number]
        claimed = client.identity if says_who else NOBODY
        before = self.driver.shard.get(client.name)
        reply = self.driver.try_init(
            client.name, claimed, two_phase=client.two_phase, keep_prepared=client.two_phase and keeps
        )
        if reply.error_code:
            assert (reply.producer_id, reply.producer_epoch) == NOBODY
            return
        if claimed != NOBODY and before is not None:
            assert not self._is_replaced(client)
        given = Identity(reply.producer_id, reply.producer_epoch)
        assert given > client.identity or claimed == NOBODY
        assert claimed != NOBODY or given != self.newest.get(client.name), "two producers have the same epoch"
        resumed = reply.ongoing_txn_producer_id >= 0
        assert not resumed or (client.two_phase and keeps)
        self._learn(client, given)
        self.reigns[client.name] = given
        self._begin(client)
        if resumed:
            ongoing = Identity(reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch)
            client.story.identity = ongoing
            client.story.writes = self._prepared_by(ongoing).writes

    @rule(number=clients, place=places)
    def write(self, number: int, place: TopicPartition) -> None:
        """As a partition's leader does: it asks the coordinator about the first write of a transaction."""
        client, log = self.clients[number], self.logs[place]
        if client.identity == NOBODY or client.story.wants is not None:
            return
        if client.version == TV1 and place not in client.story.added:
            if self.driver.add(client.identity, place, name=client.name):
                return
            client.story.added.add(place)
        if not log.in_transaction(client.identity):
            code = self.driver.add(
                client.identity,
                place,
                name=client.name,
                version=client.version,
                verify_only=client.version == TV1,
            )
            if code:
                return
            assert not self._is_replaced(client)
        fate = log.write(client.identity)
        if fate is not None:
            client.story.writes.append((place, fate))

    @rule(number=clients, place=places)
    def write_late(self, number: int, place: TopicPartition) -> None:
        """Something that was sent before the end arrives after it: it must not join whatever comes next."""
        client, log = self.clients[number], self.logs[place]
        if client.identity == NOBODY or client.version != TV2 or client.story.wants is None:
            return
        story_is_decided = client.story.told is not None
        if not log.in_transaction(client.identity) and self.driver.add(
            client.identity, place, name=client.name, version=TV2
        ):
            return
        fate = log.write(client.identity)
        if fate is not None:
            assert not story_is_decided
            client.story.writes.append((place, fate))

    @rule(number=clients, commit=st.booleans(), lost=st.booleans())
    def end(self, number: int, *, commit: bool, lost: bool) -> None:
        client = self.clients[number]
        if client.identity == NOBODY:
            return
        wants = COMMITTED if commit else ABORTED
        if client.story.wants is None:
            client.story.wants = wants
        elif client.unanswered:
            wants = client.story.wants  # asked again
        else:
            return
        reply = self.driver.try_end(
            client.identity, commit=wants == COMMITTED, name=client.name, version=client.version
        )
        if reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            client.unanswered = True
            return
        if reply.error_code == ErrorCode.NONE:
            assert not self._is_replaced(client)
        if lost:
            client.unanswered = True
            return
        client.unanswered = False
        if reply.error_code == ErrorCode.NONE:
            client.story.told = wants
            if client.version == TV2:
                assert client.identity < (reply.producer_id, reply.producer_epoch)
                self._learn(client, Identity(reply.producer_id, reply.producer_epoch))
            self._begin(client)

    @rule(number=clients)
    def give_up(self, number: int) -> None:
        """The producer is gone, and what it had open is nobody's."""
        client = self.clients[number]
        client.identity = NOBODY

    # --- the coordinator's surroundings ---

    def _write_markers(self, sent: SendMarkers, wanted: int) -> bool:
        """To some of the partitions, or to all; True if to all."""
        if sent.transaction_version == TV2:
            key = (sent.producer_id, sent.producer_epoch)
            assert self.outcomes.setdefault(key, sent.committed) == sent.committed
        reached = sorted(sent.partitions)[:wanted]
        for place in reached:
            self.logs[place].mark(sent)
        return len(reached) == len(sent.partitions)

    @precondition(lambda self: self.driver.effects)
    @rule(which=st.integers(0, 3), wanted=st.integers(1, len(PLACES)), twice=st.booleans())
    def markers(self, which: int, wanted: int, *, twice: bool) -> None:
        effects = self.driver.effects
        sent = effects[which % len(effects)]
        known = self.driver.known(sent.transactional_id)
        assert known.state is (S.PREPARE_COMMIT if sent.committed else S.PREPARE_ABORT)
        if self._write_markers(sent, wanted):
            if twice:
                self._write_markers(sent, wanted)
            effects.remove(sent)
            self.driver.perform(self.driver.shard.markers_written(sent, self.driver.now_ms))
            assert self.driver.state(sent.transactional_id) is (
                S.COMPLETE_COMMIT if sent.committed else S.COMPLETE_ABORT
            )

    @rule()
    def all_markers(self) -> None:
        for sent in list(self.driver.effects):
            self._write_markers(sent, len(PLACES))
        self.driver.write_markers()

    @rule(compacted=st.booleans())
    def move(self, *, compacted: bool) -> None:
        self.driver.reload(compacted=compacted)

    @rule(duration_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def pass_time(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)

    @rule(at_hand=st.booleans())
    def run_out_of_ids(self, *, at_hand: bool) -> None:
        self.driver.ids_at_hand = at_hand

    @rule(name=st.sampled_from(IDS))
    def age(self, name: str) -> None:
        """Uses up nearly all epochs, as thousands of idle takeovers would."""
        known = self.driver.shard.get(name)
        if known is None or not known.state.idle or known.identity.epoch >= LAST_EPOCH_GIVEN - 2:
            return
        if known.state is S.COMPLETE_COMMIT:
            return  # nothing is stored as committed twice, not even here
        holders = [client for client in self.clients if client.name == name and client.identity == known.identity]
        value = known.value()
        value.producer_epoch = LAST_EPOCH_GIVEN - 2
        value.last_producer_epoch = -1
        out = self.driver.shard.markers_written(_NOTHING, self.driver.now_ms)
        out.record(known.key(), value, 1)
        self.driver.perform(out)
        told = Identity(known.identity.producer_id, LAST_EPOCH_GIVEN - 2)
        for client in holders:
            client.identity = client.story.identity = told
        self.newest[name] = self.reigns[name] = told

    # --- what must hold ---

    @invariant()
    def loading_gives_the_same(self) -> None:
        now = {each.transactional_id: each for each in self.driver.shard}
        for compacted in (False, True):
            loaded = {each.transactional_id: each for each in self.driver.loaded(compacted=compacted)}
            assert loaded == now

    @invariant()
    def nothing_is_torn(self) -> None:
        for story in self.stories:
            fates = {fate[0] for _place, fate in story.writes} - {OPEN}
            assert len(fates) <= 1
            if story.told is not None:
                assert fates <= {story.told}
            elif story.wants is None:
                assert fates <= {ABORTED}, "nobody asked for a commit"

    @invariant()
    def what_is_prepared_is_being_marked(self) -> None:
        prepared = {each.transactional_id for each in self.driver.shard if each.state.prepared}
        assert prepared == {sent.transactional_id for sent in self.driver.effects}

    def teardown(self) -> None:
        """Time passes, everything is written: nothing is left open anywhere but what somebody else decides on."""
        self.driver.ids_at_hand = True
        for _ in range(3):
            self.driver.pass_time(2 * TIMEOUT_MS)
            self.all_markers()
        prepared_elsewhere = {each.identity.producer_id for each in self.driver.shard if each.state is S.ONGOING}
        for log in self.logs.values():
            assert set(log.open) <= prepared_elsewhere
        self.nothing_is_torn()


_NOTHING = SendMarkers("", -1, -1, False, frozenset(), 0)

TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
