"""A way to a broker that can fall silent: connections stay open, or even come about, and nothing comes through them."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 1 << 16


class Silence(Enum):
    NONE = "everything is passed on"
    BOTH = "neither hears the other"
    REQUESTS = "requests do not arrive"
    ANSWERS = "requests arrive, answers do not"


class SilentProxy:
    """What a connection has lost is lost for good, so that it stays silent; connections opened later are not."""

    def __init__(self) -> None:
        self.port = 0
        self._target = 0
        self._silence = Silence.NONE
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lead_to(self, port: int) -> None:
        self._target = port

    def fall(self, silence: Silence) -> None:
        self._silence = silence
        self._opened = 0

    async def tried_again(self, times: int) -> None:
        """Until so many connections were opened since it fell silent: by those who have given up their first."""
        while self._opened < times:
            self._changed.clear()
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._opened += 1
        self._changed.set()
        there = None
        try:
            from_there, there = await asyncio.open_connection("127.0.0.1", self._target)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, there, {Silence.BOTH, Silence.REQUESTS}))
                ways.create_task(self._pass_on(from_there, writer, {Silence.BOTH, Silence.ANSWERS}))
        except* OSError:
            pass  # one side has gone, and so does the other
        finally:
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, silent: set[Silence]) -> None:
        lost = False
        while data := await source.read(_CHUNK_BYTES):
            lost = lost or self._silence in silent
            if not lost:
                target.write(data)
                await target.drain()
        raise ConnectionResetError
