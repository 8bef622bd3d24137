"""What handlers of the controller's requests share: only the controller of the day may send them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.errors import BrokerError, ErrorCode
from tidelog.znodes.errors import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.handlers.handler import Context

logger = logging.getLogger(__name__)

FULL = 2
"""The type of a request that names everything: what it does not name is not there."""

PARTITIONS_PER_TURN = 50
"""Work over many partitions gives way to other requests after so many."""


class Sealed(Protocol):
    """By what every request of a controller says whose it is."""

    @property
    def controller_id(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...


def check_controller(ctx: Context, req: Sealed) -> None:
    if ctx.peer_broker is None or ctx.peer_broker != req.controller_id:
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"only broker {req.controller_id} may speak as controller of it"
        )
    ctx.services.fencing.check(req.controller_epoch, req.broker_epoch)


async def learn_settings(ctx: Context, req: Sealed, topics: Iterable[tuple[str, bytes]]) -> None:
    """Reads the settings of topics, named with their ids, that this broker has not heard of.

    That takes time, in which another controller may have spoken: afterwards the request is checked again.
    """
    known = ctx.services.image.topics
    names = [name for name, topic_id in topics if name not in known or known[name].topic_id != topic_id]
    if names:
        try:
            await ctx.services.settings.learn(names)
        except ZnodeError as error:
            # They are told again when they change. Partitions without a leader would be worse than late settings.
            logger.warning("the settings of %d new topics could not be read: %s", len(names), error)
        check_controller(ctx, req)
