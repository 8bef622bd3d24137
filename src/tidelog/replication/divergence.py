"""Where two logs stop being the same, found by leader epochs (KIP-101, KIP-279, KIP-595). Pure.

A follower says with each fetch which epoch its last record is of. The leader knows where that epoch ended in its own
log: if the follower has more of it, or if the leader never saw it, the logs differ from some offset on, and the
follower must cut its log back. High watermarks have no part in this: a follower learns them late, and cutting by them
would throw away what was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tidelog.storage.epochs import EpochEnd


def leaders_answer(last_fetched_epoch: int, fetch_offset: int, own_end: EpochEnd) -> EpochEnd | None:
    """What a reader must be told of its log; None if it is the same as the leader's as far as it goes.

    `own_end` is where the reader's last epoch ended here: that of the largest epoch that is not larger.
    """
    if own_end.epoch == last_fetched_epoch and own_end.end_offset >= fetch_offset:
        return None
    if own_end.end_offset < 0 or own_end.epoch < 0:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no leader epoch up to {last_fetched_epoch} is known")
    return own_end


def cut_at(leaders: EpochEnd, own_end: EpochEnd, log_end: int) -> int:
    """The offset to which a follower must cut its log, given the leader's answer.

    `own_end` is where the epoch that the leader named ended here. If it is another one, the leader may have diverged
    even before its end: after the cut, the next fetch asks again with an older epoch.
    """
    if own_end.epoch < 0 or own_end.end_offset < 0:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leader named epoch {leaders.epoch}, unasked")
    offset = own_end.end_offset
    if own_end.epoch == leaders.epoch:
        offset = min(offset, leaders.end_offset)
    if not 0 <= offset < log_end:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the leader's epoch {leaders.epoch} up to {leaders.end_offset} does not differ from a log up to {log_end}",
        )
    return offset
