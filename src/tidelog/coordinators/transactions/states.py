"""The states of a transactional id, and from which others each can be reached.

A prepared outcome is final: from PrepareCommit leads only one way, to CompleteCommit, and likewise for aborts.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """By Kafka's numbers, as they are stored."""

    EMPTY = 0
    """The id has a holder, and nothing is in a transaction of his yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided and stored: markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Never stored: the id is being forgotten, which here takes no time."""
    PREPARE_EPOCH_FENCE = 7
    """Never stored: the holder is being fenced, which here is one step with the abort."""

    @property
    def shown_as(self) -> str:
        """Kafka's name."""
        return _NAMES[self]

    @property
    def prepared(self) -> bool:
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def complete(self) -> bool:
        return self in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

    @property
    def idle(self) -> bool:
        """Nothing is in a transaction."""
        return self is TransactionState.EMPTY or self.complete


_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}

BY_NAME = {name: state for state, name in _NAMES.items()}

_S = TransactionState

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    # Who aborts what he put nothing into needs no markers.
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""What may come before each state, other than nothing."""
