"""From what an application has to the bytes of a record: what a serializer is, and how a producer uses it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidelog.client.errors import NotWritable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typing_extensions import TypeVar
else:
    from typing import TypeVar

if TYPE_CHECKING:
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    K, V = TypeVar("K"), TypeVar("V")

T_contra = TypeVar("T_contra", contravariant=True)


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """A serializer that wants to know the topic. One that does not is a plain function from the value to bytes."""

    def serialize(self, topic: str, value: T_contra) -> bytes: ...


class PreparingSerializer(Serializer[T_contra], Protocol[T_contra]):
    """One that has something to find out before it can be used for a topic, such as the id of a schema."""

    def prepare(self, topic: str) -> Awaitable[None]: ...


class Writer:
    """Applies one producer's serializer to keys or values."""

    __slots__ = ("_part", "_prepare", "_ready", "_serialize")

    def __init__(self, serializer: Serializer[Any] | Callable[[Any], bytes], part: str) -> None:
        self._part = part
        self._serialize: Callable[[str, Any], bytes]
        if isinstance(serializer, Serializer):
            self._serialize = serializer.serialize
        else:
            self._serialize = partial(_without_topic, serializer)
        self._prepare: Callable[[str], Awaitable[None]] | None = getattr(serializer, "prepare", None)
        self._ready: set[str] = set()

    def ready_for(self, topic: str) -> bool:
        return self._prepare is None or topic in self._ready

    async def prepare(self, topic: str) -> None:
        if self._prepare is not None:
            await self._prepare(topic)
            self._ready.add(topic)

    def write(self, topic: str, value: Any) -> bytes | None:
        """None stays None, whatever the serializer: it stands for a deletion."""
        if value is None:
            return None
        try:
            data: Any = self._serialize(topic, value)
        except Exception as error:  # whatever an application's code may raise
            raise NotWritable(f"the {self._part} for topic {topic} cannot be written: {error}") from error
        if not isinstance(data, bytes):
            raise NotWritable(
                f"the {self._part}_serializer gave {type(data).__name__} for topic {topic}, where bytes are needed"
            )
        return data


def _without_topic(plain: Callable[[Any], bytes], _topic: str, value: Any) -> bytes:
    return plain(value)
