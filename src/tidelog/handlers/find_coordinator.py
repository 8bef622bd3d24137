"""FindCoordinator (10), v0-6. Answers that no coordinator is available: groups and transactions are not served yet.

It is offered all the same, because clients look for it to learn what the broker can do (librdkafka sends lz4
uncompressed without it). v3 flexible · v4 many keys at once
"""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_MANY_KEYS_SINCE = 4
_NOBODY = -1
_MESSAGES = {
    0: "consumer groups are not served by this broker yet: assign partitions instead of subscribing",
    1: "transactions are not served by this broker yet: use an idempotent producer",
}


def handle(ctx: Context, req: FindCoordinatorRequest) -> FindCoordinatorResponse:
    message = _MESSAGES.get(req.key_type)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if message else ErrorCode.INVALID_REQUEST
    message = message or f"key type {req.key_type} is not known: 0 is a group, 1 a transactional id"
    if ctx.version < _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=_NOBODY, port=_NOBODY)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=code, error_message=message)
            for key in req.coordinator_keys
        ]
    )


HANDLER = Handler(FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 6), handle=handle)
