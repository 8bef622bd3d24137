"""Follows the notes that brokers leave under `/config/changes` when they change settings, and clears old ones away."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.controller.settings import CLUSTER_DEFAULT
from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import NodeFormatError, NoNode, ZnodeError
from tidelog.znodes.store import SessionState

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.controller.settings import Settings
    from tidelog.znodes.store import Stat, WatchEvent, ZnodeStore

logger = logging.getLogger(__name__)

NOTE_KEPT_MS = 15 * 60 * 1000
"""Long enough for every broker to have seen it; one that has been away longer reads everything anew."""
RETRY_S = 1.0


class SettingsFollower:
    def __init__(self, znodes: ZnodeStore, settings: Settings, clock: Clock) -> None:
        self._znodes = znodes
        self._settings = settings
        self._clock = clock
        self._seen = ""
        """The name of the last note that was read: they sort by the order in which they were written."""
        self._missed = False
        """Whether notes may have been missed, so that everything is to be read anew."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads all settings, and follows their changes from then on."""
        names = await self._znodes.children(paths.CONFIG_CHANGES, watch=self._on_note)
        self._seen = max(names, default="")
        await self._settings.load()
        self._znodes.add_listener(self._on_session)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="settings-follower")

    async def stop(self) -> None:
        self._znodes.remove_listener(self._on_session)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_note(self, _event: WatchEvent) -> None:
        self._wake.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._missed = True
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._catch_up()
            except ZnodeError as error:
                logger.warning("settings are looked at again in %.0f s: %s", RETRY_S, error)
                self._missed = True
                self._wake.set()
                await asyncio.sleep(RETRY_S)
            except Exception:
                logger.exception("a change of settings was not taken up")

    async def _catch_up(self) -> None:
        missed, self._missed = self._missed, False
        names = await self._znodes.children(paths.CONFIG_CHANGES, watch=self._on_note)
        if missed:
            await self._settings.load()
        fresh = [name for name in names if name > self._seen]
        notes = await self._znodes.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in names])
        await self._take_up([note for name, note in zip(names, notes, strict=True) if note and name in set(fresh)])
        self._seen = max(names, default=self._seen)
        await self._clear(names, notes)

    async def _take_up(self, notes: list[tuple[bytes, Stat]]) -> None:
        topics, brokers = [], []
        for data, _stat in notes:
            try:
                kind, _, name = nodes.decode_config_change(paths.CONFIG_CHANGES, data).partition("/")
            except NodeFormatError as error:
                logger.error("a note of changed settings is ignored: %s", error)
                continue
            if kind == "topics":
                topics.append(name)
            elif kind == "brokers":
                brokers.append(CLUSTER_DEFAULT if name == paths.DEFAULT_ENTITY else name)
        if topics:
            await self._settings.learn(dict.fromkeys(topics))
        if brokers:
            await self._settings.reread_brokers(dict.fromkeys(brokers))

    async def _clear(self, names: list[str], notes: list[tuple[bytes, Stat] | None]) -> None:
        oldest_ms = self._clock.now_ms() - NOTE_KEPT_MS
        for name, note in zip(names, notes, strict=True):
            if note is not None and note[1].ctime_ms < oldest_ms:
                try:
                    await self._znodes.delete(f"{paths.CONFIG_CHANGES}/{name}")
                except NoNode:
                    continue  # another broker was faster
