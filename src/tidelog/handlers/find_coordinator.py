"""FindCoordinator (10), v0-6. Asks which broker coordinates a group or a transactional id.

That is the leader of its partition of the internal topic.

v1 transactional ids · v3 flexible · v4 many keys at once. Share groups are not served yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.handler import Answer, Context, Handler
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from tidelog.controller.image import Endpoint
    from tidelog.handlers.handler import Groups, Transactions

GROUP, TRANSACTION = 0, 1
_MANY_KEYS_SINCE = 4
_NOBODY = -1


def handle(ctx: Context, req: FindCoordinatorRequest) -> Answer[FindCoordinatorResponse]:
    kind = _kind(ctx, req.key_type)
    if kind is not None and kind.coordinator.partition_of("") is None:
        return _create_and_reply(ctx, req, kind)
    return _reply(ctx, req)


def _kind(ctx: Context, key_type: int) -> Groups | Transactions | None:
    if key_type == GROUP:
        return ctx.services.groups
    return ctx.services.transactions if key_type == TRANSACTION else None


async def _create_and_reply(
    ctx: Context, req: FindCoordinatorRequest, kind: Groups | Transactions
) -> FindCoordinatorResponse:
    """The internal topic comes with the first group or transactional id that anybody looks for."""
    await kind.ensure_topic()
    return _reply(ctx, req)


def _reply(ctx: Context, req: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.version >= _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=[_find(ctx, req.key_type, key) for key in req.coordinator_keys])
    found = _find(ctx, req.key_type, req.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    try:
        broker_id, endpoint = _coordinator_of(ctx, key_type, key)
    except BrokerError as error:
        return Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=error.code, error_message=error.message)
    return Coordinator(key=key, node_id=broker_id, host=endpoint.host, port=endpoint.port, error_message=None)


def _coordinator_of(ctx: Context, key_type: int, key: str) -> tuple[int, Endpoint]:
    kind = _kind(ctx, key_type)
    if kind is None:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known: 0 is a group, 1 is a transactional id"
        )
    coordinator = kind.coordinator
    partition = coordinator.partition_of(key)
    if partition is None:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the internal topic is being created: try again")
    image = ctx.services.image
    leader = image.topic(coordinator.topic).partitions[partition].leader
    for broker_id, endpoint, _rack in image.endpoints(ctx.listener):
        if broker_id == leader:
            return broker_id, endpoint
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {key!r} has no leader now: try again")


HANDLER = Handler(FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 6), handle=handle)
