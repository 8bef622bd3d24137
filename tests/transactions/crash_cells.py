"""The cells of the crash matrix: one transaction each, that has come to a certain step when a broker is ended."""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from crash_stage import BROKERS, HELD, OFFSET_PARTITIONS, OFFSETS, OPEN, STATES
from group_positions import commit_plainly, positions_of
from stepwise import WITHIN_S, Dialect, RefusedError, StepwiseProducer

from tidelog.coordinators.placement import partition_for
from tidelog.errors import ErrorCode
from tidelog.testing import eventually
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash_stage import CrashStage

    from tidelog.wire.messages.end_txn import EndTxnResponse


class Role(Enum):
    """Of the broker that is ended."""

    COORDINATOR = "coordinator"
    FIRST_LEADER = "leader of the first partition"
    SECOND_LEADER = "leader of the second partition"
    GROUP_COORDINATOR = "group coordinator"
    EVERYTHING = "everything"


class Step(Enum):
    """Up to which the transaction has come by then."""

    INITIALISED = "initialised"
    ADDED = "added"
    PRODUCING = "producing"
    """Some records and an offset are stored, others are on their way."""
    ENDING = "ending"
    """The request to end it is on its way: nobody knows whether it arrived."""
    PREPARED = "prepared"
    """The outcome is stored and told, and no marker is written."""
    ONE_MARKED = "one partition marked"
    """The first data partition has its marker, the second and the group's offsets have not."""
    OFFSETS_MARKED = "offsets marked"
    """The group's offsets have their marker, the data have not."""
    COMPLETE = "complete"


ENDED = frozenset({Step.PREPARED, Step.ONE_MARKED, Step.OFFSETS_MARKED, Step.COMPLETE})
"""The client was told the outcome before the crash."""
_FIRST_IS_HELD = frozenset({Step.PREPARED, Step.OFFSETS_MARKED})
_SECOND_IS_HELD = frozenset({Step.PREPARED, Step.ONE_MARKED, Step.OFFSETS_MARKED})

OFFSET_BEFORE, OFFSET_EARLY, OFFSET_WITHIN, OFFSET_AGAIN = 5, 41, 42, 50


class Client(Enum):
    """What it does after the crash."""

    GOES_ON = "goes on"
    """From what it was told, or else it asks again."""
    ASKS_AGAIN = "asks again"
    """How the transaction ended, whatever it was told; then a successor takes over."""
    IS_GONE = "is gone"
    """And a successor takes over from wherever it was."""


class Kind(NamedTuple):
    role: Role
    step: Step
    committed: bool
    dialect: Dialect

    def __str__(self) -> str:
        ending = "commit" if self.committed else "abort"
        return f"{self.role.value}, {self.step.value}, {ending}, {self.dialect.name.lower()}"


ALL_KINDS = [Kind(*each) for each in product(Role, Step, (True, False), Dialect)]
_ENDS = list(product((True, False), Dialect))
SOME_KINDS = [
    Kind(role, step, *_ENDS[(row + column) % len(_ENDS)])
    for row, role in enumerate(Role)
    for column, step in enumerate(Step)
]
"""Each role at each step, and each way to end in both dialects at each step and in each role."""


class Places(NamedTuple):
    """Brokers by what they do for a transaction."""

    coordinator: int
    first: int
    second: int
    group: int


def places_for(role: Role, victim: int) -> Places:
    """The victim has this role and no other, where that can be."""
    one, other = (each for each in BROKERS if each != victim)
    return {
        Role.COORDINATOR: Places(victim, one, other, one),
        Role.FIRST_LEADER: Places(one, victim, other, other),
        Role.SECOND_LEADER: Places(other, one, victim, one),
        Role.GROUP_COORDINATOR: Places(one, other, one, victim),
        Role.EVERYTHING: Places(victim, victim, victim, victim),
    }[role]


class CrashCell:
    def __init__(self, stage: CrashStage, kind: Kind, victim: int, number: int) -> None:
        """Which client it is goes by the number."""
        places = places_for(kind.role, victim)
        self.kind = kind
        self._stage = stage
        self.client = list(Client)[number % len(Client)]
        self._outcome: bool | None = kind.committed
        """None while nobody knows."""
        self.first = stage.partition(HELD if kind.step in _FIRST_IS_HELD else OPEN, places.first, 0)
        self.second = stage.partition(HELD if kind.step in _SECOND_IS_HELD else OPEN, places.second, 1)
        self.producer = StepwiseProducer(
            stage.cluster,
            stage.name(f"{kind}", STATES, places.coordinator),
            stage.name(f"{kind}", OFFSETS, places.group),
            kind.dialect,
        )
        self.offsets = TopicPartition(OFFSETS, partition_for(self.producer.group, OFFSET_PARTITIONS))
        self._told: EndTxnResponse | None = None
        self._actions = self._all_actions()
        self._done = 0

    def __str__(self) -> str:
        return f"{self.producer} whose client {self.client.value}"

    def _all_actions(self) -> list[Callable[[], None]]:
        """All but the end."""
        producer, first, second = self.producer, self.first, self.second
        return [
            producer.initialise,
            lambda: commit_plainly(self._stage.cluster, producer.group, OFFSET_BEFORE),
            lambda: producer.add(first, second),
            producer.add_offsets,
            lambda: producer.produce(first, self._values("a", "b")),
            lambda: producer.produce(second, self._values("a", "b")),
            lambda: producer.commit_offset(OFFSET_EARLY),
            lambda: producer.produce(first, self._values("c")),
            lambda: producer.produce(second, self._values("c")),
            lambda: producer.commit_offset(OFFSET_WITHIN),
        ]

    def _values(self, *names: str) -> list[str]:
        return [f"{self.producer.transactional_id}|{name}" for name in names]

    # --- before the crash ---

    def begin(self) -> None:
        """All before the end that comes before the step."""
        joins = self.kind.dialect is Dialect.JOINS
        upto = {Step.INITIALISED: 2, Step.ADDED: 5 if joins else 4, Step.PRODUCING: 7}
        self._act(upto.get(self.kind.step, len(self._actions)))

    def end(self) -> None:
        self._told = self.producer.end_once(committed=self.kind.committed)

    def wait_for_step(self) -> None:
        """Until the transaction is where it is to be: in the coordinator's eyes, and by its markers."""
        if self.kind.step is Step.ENDING:
            return
        ending = "Commit" if self.kind.committed else "Abort"
        state = {
            Step.INITIALISED: "Empty",
            Step.PREPARED: f"Prepare{ending}",
            Step.ONE_MARKED: f"Prepare{ending}",
            Step.OFFSETS_MARKED: f"Prepare{ending}",
            Step.COMPLETE: f"Complete{ending}",
        }.get(self.kind.step, "Ongoing")
        unmarked = {
            Step.PRODUCING: {self.first, self.second, self.offsets},
            Step.ADDED: {self.first} if self.kind.dialect is Dialect.JOINS else set(),
            Step.PREPARED: {self.first, self.second, self.offsets},
            Step.ONE_MARKED: {self.second, self.offsets},
            Step.OFFSETS_MARKED: {self.first, self.second},
        }.get(self.kind.step, set())

        def there() -> bool:
            return (self.producer.state(), self._unmarked()) == (state, unmarked)

        try:
            eventually(there, f"{self} to be {self.kind.step}", within_s=WITHIN_S)
        except TimeoutError:
            raise AssertionError(f"it is {self.producer.state()}, open in {self._unmarked()}") from None

    def _unmarked(self) -> set[TopicPartition]:
        places = {self.first, self.second, self.offsets}
        return {place for place in places if self._stage.is_open_in(place, self.producer.producer_id)}

    def aim(self) -> None:
        """Connects for what is to be on its way when the crash comes."""
        if self.kind.step is Step.PRODUCING:
            self.producer.aim_produce(self.first, self._values("c"))
            self.producer.aim_produce(self.second, self._values("c"))
            self.producer.aim_offset(OFFSET_WITHIN)
        elif self.kind.step is Step.ENDING:
            self.producer.aim_end(committed=self.kind.committed)

    # --- after the crash ---

    def go_on(self) -> None:
        """As a client does: it repeats what was not answered, does the rest, and then the next transaction."""
        self.producer.forget_answers()
        if self.client is Client.IS_GONE:
            self._be_replaced()
        else:
            self._act(len(self._actions))
            if self._told is None or self.client is Client.ASKS_AGAIN:
                self.producer.end(committed=self.kind.committed)
            else:
                self.producer.ended(self._told)
            if self.client is Client.ASKS_AGAIN:
                self._take_over()
        self._next_transaction()

    def _be_replaced(self) -> None:
        self.producer.initialise()
        if self.kind.step is Step.ENDING:
            self._outcome = None
        elif self.kind.step not in ENDED:
            self._outcome = False

    def _take_over(self) -> None:
        fenced = StepwiseProducer(
            self._stage.cluster, self.producer.transactional_id, self.producer.group, self.kind.dialect
        )
        fenced.producer_id, fenced.epoch = self.producer.producer_id, self.producer.epoch
        self.producer.initialise()
        try:
            fenced.end(committed=False)
        except RefusedError as error:
            assert error.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}, error  # noqa: PT017
        else:
            raise AssertionError("who was replaced can still end transactions")

    def _next_transaction(self) -> None:
        self.producer.add(self.first, self.second)
        self.producer.add_offsets()
        self.producer.produce(self.first, self._values("next"))
        self.producer.produce(self.second, self._values("next"))
        self.producer.commit_offset(OFFSET_AGAIN, partition=1)
        self.producer.end(committed=True)

    def _act(self, upto: int) -> None:
        while self._done < upto:
            self._actions[self._done]()
            self._done += 1

    # --- judgement ---

    def learn_outcome(self, committed: list[str]) -> None:
        """From what can be read in the first partition, if nobody could tell."""
        if self._outcome is None:
            self._outcome = self._values("a")[0] in committed

    def written(self, place: TopicPartition) -> list[list[str]]:
        """What may be found in one of its partitions, by who reads everything."""
        step, following = self.kind.step, self._values("next")
        everything = self._values("a", "b", "c") + following
        if self.client is not Client.IS_GONE or step is Step.ENDING or step in ENDED:
            return [everything]
        if step is Step.PRODUCING:
            return [everything, self._values("a", "b") + following]
        joined = step is Step.ADDED and self.kind.dialect is Dialect.JOINS and place == self.first
        return [self._values("a", "b") + following if joined else following]

    def visible(self, _place: TopicPartition) -> list[list[str]]:
        """For whoever reads what is committed."""
        return [self._values("a", "b", "c", "next") if self._outcome else self._values("next")]

    def check_offsets(self) -> None:
        found = positions_of(self._stage.cluster, self.producer.group)
        wanted = {0: OFFSET_WITHIN if self._outcome else OFFSET_BEFORE, 1: OFFSET_AGAIN}
        assert found == wanted, f"its offsets are {found}, not {wanted}"

    def check_complete(self) -> None:
        assert self.producer.state() == "CompleteCommit"
