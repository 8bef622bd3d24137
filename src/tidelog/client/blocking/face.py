"""What clients without `await` have in common: they start, and close, an asyncio client in the loop's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from tidelog.client.blocking.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class AsyncClient(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=AsyncClient)


class Face(Generic[C]):
    def __init__(self, make: Callable[[], C]) -> None:
        self._loop = LoopThread.shared()
        self._client = self._loop.call(make)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._client.__aexit__(kind, error, trace))
        finally:
            self._loop.forget(self)

    def start(self) -> None:
        """Connects to the cluster; BrokersUnreachable when no broker answers."""
        self._loop.run(self._client.__aenter__())
        self._loop.keep(self)

    def close(self) -> None:
        """Ends every connection."""
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.forget(self)
