"""The timers of groups of the newer protocol. What is waited for is told by the first part of a timer's key:

    ("consumer-session", group, member)   a silent member is thrown out. Heartbeats only move the deadline in memory,
                                          the timer looks at it when it rings
    ("consumer-revoke", group, member)    a member must say in time that it let go of what it was told to
    ("consumer-join", group, member)      a classic member that was told of a rebalance must join again in time
    ("consumer-sync", group, member)      and must then ask for its share in time
    ("consumer-downgraded", group)        the group has just become a classic one, whose members must join again
    ("consumer-topics",)                  goes on telling groups of topics that have changed

There is one timer of each kind for a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.coordinators.decision import Decision

SESSION: Final = "consumer-session"
REVOKE: Final = "consumer-revoke"
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"
DOWNGRADED: Final = "consumer-downgraded"
TOPICS: Final = "consumer-topics"

TimerKey = tuple[str, str, str]


def session_key(group_id: str, member_id: str) -> TimerKey:
    return SESSION, group_id, member_id


def revoke_key(group_id: str, member_id: str) -> TimerKey:
    return REVOKE, group_id, member_id


def join_key(group_id: str, member_id: str) -> TimerKey:
    return JOIN, group_id, member_id


def sync_key(group_id: str, member_id: str) -> TimerKey:
    return SYNC, group_id, member_id


def downgraded_key(group_id: str) -> tuple[str, str]:
    return DOWNGRADED, group_id


def cancel_all(group_id: str, member_id: str, out: Decision) -> None:
    for kind in (SESSION, REVOKE, JOIN, SYNC):
        out.cancel((kind, group_id, member_id))
