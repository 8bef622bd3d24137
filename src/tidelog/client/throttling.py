"""When a broker wants to be left alone: it says so with its answers (KIP-219). No I/O: the caller brings the time."""

from __future__ import annotations

from typing import Final

from tidelog.wire.api_keys import ApiKey

_FIRST_NEW_KEY: Final = ApiKey.ELECT_LEADERS
"""This API and those after it are younger than the rule."""

_SINCE: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
}
"""In earlier versions the broker has held the answer back for that time already."""

_REST_MAX_S: Final = 60.0
"""More than any quota asks for. A broker that means it does not read any sooner, whatever is sent."""


def rest_s(api: int, version: int, throttle_time_ms: int) -> float:
    """For how long nothing is to be sent after such an answer."""
    since = 0 if api >= _FIRST_NEW_KEY else _SINCE.get(ApiKey(api))
    if since is None or version < since:
        return 0.0
    return min(max(0, throttle_time_ms) / 1000, _REST_MAX_S)


class Quiet:
    """Of one connection: until when nothing is sent."""

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s: float | None = None

    @property
    def begun(self) -> bool:
        """Whether there may be something to wait for; `wait_s` tells."""
        return self._until_s is not None

    def told(self, rest_s: float, now_s: float) -> None:
        if rest_s > 0:
            self._until_s = max(self._until_s or 0.0, now_s + rest_s)

    def wait_s(self, now_s: float) -> float:
        if self._until_s is None or now_s >= self._until_s:
            self._until_s = None
            return 0.0
        return self._until_s - now_s
