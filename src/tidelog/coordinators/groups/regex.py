"""Matches topic names against the patterns that members subscribe by, in time bounded by the length of the name.

A pattern is a program over sets of positions, which never goes back: no pattern makes it slow, as some make
backtracking matchers. The sets that come up are kept, so that matching is mostly one look-up for each character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.regex_syntax import Chars, Choice, End, Node, Repeat, Sequence, Start, parse
from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM_PARTS_MAX = 2000
STATES_KEPT_MAX = 500
PATTERNS_KEPT_MAX = 1000

NOT_BY_PATTERN = frozenset({"__consumer_offsets", "__transaction_state"})
"""A pattern that means everything does not mean the coordinators' own records: reading them would write more."""


class _Step(NamedTuple):
    """One step of a program: take a character, or go on in several places at once."""

    takes: frozenset[str] | None
    goes_to: tuple[int, ...]
    only_at: type[Start | End] | None = None


class _State:
    """A set of places in the program that a name has led to, and where each further character leads."""

    __slots__ = ("accepts", "following", "places")

    def __init__(self, places: frozenset[int], *, accepts: bool) -> None:
        self.places = places
        self.accepts = accepts
        self.following: dict[str, _State] = {}


class TopicPattern:
    def __init__(self, pattern: str) -> None:
        """Raises BrokerError INVALID_REGULAR_EXPRESSION."""
        self._steps: list[_Step] = []
        self._parts = 0
        self._compile(parse(pattern), pattern)
        self._accepting = len(self._steps)
        self._states: dict[frozenset[int], _State] = {}
        self._begin = self._state(self._reach({0}, at_start=True))

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        state = self._begin
        for character in name:
            following = state.following.get(character)
            state = following if following is not None else self._follow(state, character)
        return state.accepts

    def _follow(self, state: _State, character: str) -> _State:
        steps = self._steps
        landed = {
            step.goes_to[0]
            for place in state.places
            if place < self._accepting and (step := steps[place]).takes is not None and character in step.takes
        }
        following = self._state(self._reach(landed))
        state.following[character] = following
        return following

    def _state(self, places: frozenset[int]) -> _State:
        state = self._states.get(places)
        if state is None:
            if len(self._states) >= STATES_KEPT_MAX:
                for known in self._states.values():
                    known.following.clear()
                self._states.clear()
            accepts = self._accepting in self._reach(set(places), at_end=True)
            state = self._states[places] = _State(places, accepts=accepts)
        return state

    def _reach(self, places: set[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """The places that can be come to without taking a character."""
        pending = list(places)
        reached = set(places)
        while pending:
            place = pending.pop()
            if place == self._accepting:
                continue
            takes, goes_to, only_at = self._steps[place]
            if takes is not None or (only_at is Start and not at_start) or (only_at is End and not at_end):
                continue
            for goal in goes_to:
                if goal not in reached:
                    reached.add(goal)
                    pending.append(goal)
        return frozenset(reached)

    # --- compiling: every part starts at the next step and leaves at the step after its last ---

    def _compile(self, node: Node, pattern: str) -> None:
        self._parts += 1  # parts that match nothing leave no steps, and can be repeated endlessly all the same
        if self._parts > PROGRAM_PARTS_MAX:
            raise BrokerError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the pattern {pattern!r} is too large: use fewer counted repetitions",
            )
        match node:
            case Chars(allowed):
                self._add(allowed, len(self._steps) + 1)
            case Sequence(parts):
                for part in parts:
                    self._compile(part, pattern)
            case Choice(options):
                self._compile_choice(options, pattern)
            case Repeat():
                self._compile_repeat(node, pattern)
            case Start():
                self._steps.append(_Step(None, (len(self._steps) + 1,), Start))
            case End():
                self._steps.append(_Step(None, (len(self._steps) + 1,), End))

    def _compile_choice(self, options: tuple[Node, ...], pattern: str) -> None:
        fork = self._add(None)
        starts, ends = [], []
        for option in options:
            starts.append(len(self._steps))
            self._compile(option, pattern)
            ends.append(self._add(None))
        self._steps[fork] = _Step(None, tuple(starts))
        for end in ends:
            self._steps[end] = _Step(None, (len(self._steps),))

    def _compile_repeat(self, repeat: Repeat, pattern: str) -> None:
        for _time in range(repeat.least):
            self._compile(repeat.part, pattern)
        if repeat.most is None:
            fork = self._add(None)
            self._compile(repeat.part, pattern)
            self._add(None, fork)
            self._steps[fork] = _Step(None, (fork + 1, len(self._steps)))
            return
        forks = []
        for _time in range(repeat.most - repeat.least):
            forks.append(self._add(None))
            self._compile(repeat.part, pattern)
        for fork in forks:
            self._steps[fork] = _Step(None, (fork + 1, len(self._steps)))

    def _add(self, takes: frozenset[str] | None, *goes_to: int) -> int:
        self._steps.append(_Step(takes, goes_to))
        return len(self._steps) - 1


class TopicPatterns:
    """The patterns in use, and the topics that match each of them."""

    def __init__(self) -> None:
        self.informed = False
        """Whether it is known which topics there are."""
        self._names: frozenset[str] = frozenset()
        self._patterns: dict[str, TopicPattern] = {}
        self._matching: dict[str, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def show(self, names: Iterable[str]) -> None:
        """Tells which topics there are. Only those that are new are matched."""
        now = frozenset(names) - NOT_BY_PATTERN
        added, gone = now - self._names, self._names - now
        self._names = now
        self.informed = True
        if not added and not gone:
            return
        for text, pattern in self._patterns.items():
            found = {name for name in added if pattern.matches(name)}
            if found or not gone.isdisjoint(self._matching[text]):
                self._matching[text] = self._matching[text] - gone | found

    def forget(self) -> None:
        self.informed = False
        self._names = frozenset()
        self._patterns.clear()
        self._matching.clear()

    def check(self, pattern: str) -> None:
        """Raises BrokerError INVALID_REGULAR_EXPRESSION if the pattern makes no sense."""
        if pattern not in self._patterns:
            TopicPattern(pattern)

    def matching(self, pattern: str) -> frozenset[str]:
        """The topics that match; none match a pattern that makes no sense, which only a stored one can."""
        topics = self._matching.get(pattern)
        if topics is not None:
            return topics
        assert self.informed, "patterns are matched against topics that are known"
        try:
            compiled = TopicPattern(pattern)
        except BrokerError:
            return frozenset()
        if len(self._patterns) >= PATTERNS_KEPT_MAX:
            self._patterns.clear()
            self._matching.clear()
        topics = frozenset(name for name in self._names if compiled.matches(name))
        self._patterns[pattern] = compiled
        self._matching[pattern] = topics
        return topics
