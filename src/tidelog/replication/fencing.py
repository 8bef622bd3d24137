"""Which controller counts: the newest that was heard of, speaking to this life of this broker. Pure."""

from __future__ import annotations

from tidelog.errors import BrokerError, ErrorCode

UNKNOWN_EPOCH = -1


class Fencing:
    __slots__ = ("broker_epoch", "controller_epoch")

    def __init__(self) -> None:
        self.controller_epoch = UNKNOWN_EPOCH
        """The highest that was heard of."""
        self.broker_epoch = UNKNOWN_EPOCH
        """Of this broker's registration; set whenever it registers."""

    def check(self, controller_epoch: int, broker_epoch: int) -> None:
        """Refuses what an earlier controller says, and what was meant for an earlier life of this broker."""
        if controller_epoch < self.controller_epoch:
            raise BrokerError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"a controller of epoch {self.controller_epoch} has spoken, this one is of {controller_epoch}",
            )
        if UNKNOWN_EPOCH < broker_epoch < self.broker_epoch:
            raise BrokerError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"this broker is registered with epoch {self.broker_epoch}, and was spoken to as {broker_epoch}",
            )
        self.controller_epoch = controller_epoch
