"""What handlers of requests to the controller share: finding it, and telling brokers from clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tidelog.controller.runtime import Controller
    from tidelog.handlers.handler import Context


def controller_of(ctx: Context) -> Controller:
    """This broker's controller, which itself refuses what it is asked while another one reigns."""
    controller = ctx.services.controller
    if controller is None:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, "this broker does not control a cluster")
    return controller


def check_sender(ctx: Context, broker_id: int) -> None:
    """Refuses a request in the name of a broker that did not come from it."""
    if ctx.peer_broker is None or ctx.peer_broker != broker_id:
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"only broker {broker_id} itself may ask that, not a client"
        )
