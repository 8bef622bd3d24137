"""Commits a stream's positions to a consumer group, so that its lag shows in every tool.

It happens beside the query and never holds it up: Spark's checkpoint is what counts. What cannot be committed is
logged.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from typing import TYPE_CHECKING, Final

from tidelog.pipelines.source.connections import start

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.config import ConsumerConfig
    from tidelog.pipelines.source.positions import Positions

log = logging.getLogger(__name__)

_CLOSE_WITHIN_S: Final = 2.0


class GroupCommitter:
    """The newest positions win: those that come while a commit is under way replace each other."""

    def __init__(self, config: ConsumerConfig, group_id: str) -> None:
        self._config = config
        self._group_id = group_id
        self._noted: Positions = {}
        self._last: concurrent.futures.Future[None] | None = None
        # From here on it is the loop's thread that reads and writes.
        self._wanted: Positions = {}
        self._waiting = False
        self._turn = asyncio.Lock()
        self._admin: Admin | None = None
        self._complained = False

    def note(self, positions: Positions) -> None:
        """Everything before these has been dealt with. Returns at once."""
        changed = {at: offset for at, offset in positions.items() if self._noted.get(at) != offset}
        self._noted = positions
        if changed:
            self._last = start(self._commit(changed))

    def close(self) -> None:
        """Gives what is under way a moment."""
        if self._last is None:
            return
        closing = start(self._close())
        try:
            closing.result(_CLOSE_WITHIN_S)
        except concurrent.futures.TimeoutError:
            closing.cancel()

    async def _commit(self, changed: Positions) -> None:
        self._wanted |= changed
        if self._waiting:
            return  # whoever waits takes these along
        self._waiting = True
        async with self._turn:
            self._waiting = False
            positions, self._wanted = self._wanted, {}
            try:
                admin = await self._opened()
                outcomes = await admin.alter_group_offsets(self._group_id, positions)
                refused = next(iter(outcomes.errors.values()), None)
                if refused is not None:
                    raise refused
            except Exception as error:  # noqa: BLE001 - a task's top frame; whatever it is, the query goes on
                level = logging.DEBUG if self._complained else logging.WARNING
                log.log(
                    level, "positions could not be committed to group %s, the query goes on: %s", self._group_id, error
                )
                self._complained = True
            else:
                self._complained = False

    async def _opened(self) -> Admin:
        if self._admin is None:
            from tidelog.client.admin import Admin  # noqa: PLC0415 - takes long to load, and the query need not wait

            admin = Admin(self._config)
            await admin.start()
            self._admin = admin
        return self._admin

    async def _close(self) -> None:
        try:
            async with self._turn:
                pass
        finally:
            if self._admin is not None:
                await self._admin.close()
