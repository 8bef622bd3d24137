"""The vocabulary in which messages are declared.

    @message(api=22, versions="0-6", flexible="2+")
    class InitProducerIdRequest(Message):
        transactional_id: String | None = at("0+", nullable="0+")
        transaction_timeout_ms: Int32 = at("0+")
        producer_id: Int64 = at("3+", default=-1)

A declaration is all there is: its classes hold values, the codecs are derived from it. Instances are mutable slotted
objects, because construction is on the hot path and freezing triples its price. Arguments are keywords; the positional
order that decoders use is the order of declaration.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Protocol,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Scalar(Enum):
    """A wire type that is not made of others; the value is its `struct` format where it has a fixed width."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UINT16 = "H"
    FLOAT64 = "d"
    BOOL = "?"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def fixed(self) -> bool:
        return self not in {Scalar.STRING, Scalar.BYTES, Scalar.RECORDS}

    @property
    def zero(self) -> object:
        return _ZEROS.get(self, 0)


_ZEROS: dict[Scalar, object] = {
    Scalar.FLOAT64: 0.0,
    Scalar.BOOL: False,
    Scalar.UUID: bytes(16),
    Scalar.STRING: "",
    Scalar.BYTES: b"",
    Scalar.RECORDS: b"",
}


class Spliced(Protocol):
    """Records that stay in their file: the encoder notes where they belong, the socket shell sends them."""

    @property
    def size(self) -> int: ...


Int8 = Annotated[int, Scalar.INT8]
Int16 = Annotated[int, Scalar.INT16]
Int32 = Annotated[int, Scalar.INT32]
Int64 = Annotated[int, Scalar.INT64]
UInt16 = Annotated[int, Scalar.UINT16]
Float64 = Annotated[float, Scalar.FLOAT64]
Bool = Annotated[bool, Scalar.BOOL]
Uuid = Annotated[bytes, Scalar.UUID]
String = Annotated[str, Scalar.STRING]
Bytes = Annotated[bytes, Scalar.BYTES]
Records = Annotated[bytes | bytearray | memoryview | Spliced, Scalar.RECORDS]


@dataclass(frozen=True, slots=True)
class VersionRange:
    first: int
    last: int

    NEWEST: ClassVar[int] = 32767

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """ "3+", "0-14", "7", or "none"."""
        if text in {"", "none"}:
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), cls.NEWEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Any:
        return iter(range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class Array:
    item: WireType


WireType = Union[Scalar, Array, "type[Struct]"]

_NO_DEFAULT: Any = object()

EMPTY: Any = _NO_DEFAULT
"""As a default: an empty list, or a struct of defaults."""

ZERO_UUID = bytes(16)


@dataclass(frozen=True, slots=True)
class Placement:
    """What `at` says of a field: where it is on the wire, version by version."""

    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    ignorable: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: WireType
    placement: Placement
    default: Any
    """The value when the message does not carry the field. A struct is shared by all who leave it out: replace it,
    never change it. Lists are made anew, see `fresh_default`."""

    def fresh_default(self) -> Any:
        return [] if isinstance(self.type, Array) and self.default is not None else self.default


def at(
    versions: str,
    *,
    default: Any = _NO_DEFAULT,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    """Declares a field's versions. A field without a default must be given; one with a default may be left out.

    `ignorable` fields are dropped silently when a version has no place for them; others refuse to be encoded with any
    value but their default.
    """
    return Placement(
        VersionRange.parse(versions),
        VersionRange.parse(nullable),
        VersionRange.parse(tagged),
        tag,
        ignorable,
        default,
    )


class Struct:
    """The base every declared class gets: equality and printing by field."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **_values: Any) -> None:
        """Replaced for each declared class by one that assigns its own fields."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request, a response, or a record stored on an internal topic."""

    __slots__ = ()
    API: ClassVar[int] = -1
    VERSIONS: ClassVar[VersionRange] = VersionRange(0, -1)
    FLEXIBLE: ClassVar[VersionRange] = VersionRange(0, -1)
    IS_REQUEST: ClassVar[bool] = False


T = TypeVar("T")


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def struct(cls: type[T]) -> type[T]:
    """Declares a part of a message. Its fields' versions are the message's."""
    return cast("type[T]", _build(cls, {}))


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def message(*, versions: str, flexible: str, api: int = -1) -> Callable[[type[T]], type[T]]:
    """Declares a whole message: every version in `versions` can be encoded and decoded."""

    def declare(cls: type[T]) -> type[T]:
        attributes = {
            "API": api,
            "VERSIONS": VersionRange.parse(versions),
            "FLEXIBLE": VersionRange.parse(flexible),
            "IS_REQUEST": cls.__name__.endswith("Request"),
        }
        return cast("type[T]", _build(cls, attributes))

    return declare


def _build(cls: type, attributes: dict[str, Any]) -> type:
    """Makes the class anew, since slots cannot be added to one that exists."""
    fields = tuple(_field(name, annotation, cls.__dict__[name]) for name, annotation in cls.__annotations__.items())
    namespace = {
        **attributes,
        "__slots__": tuple(field.name for field in fields),
        "__annotations__": cls.__annotations__,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__init__": _initialiser(fields),
        "FIELDS": fields,
    }
    return type(cls.__name__, cls.__bases__, namespace)


def _initialiser(fields: tuple[Field, ...]) -> Any:
    """Compiles `__init__`: dataclasses would do it too, but compile three more methods for each of some 500 classes."""
    scope: dict[str, Any] = {"_UNSET": _NO_DEFAULT}
    parameters, body = ["self"], []
    for field in fields:
        name = field.name
        if field.default is None or not isinstance(field.type, Array):
            scope[f"_{name}"] = field.default
            parameters.append(f"{name}=_{name}")
            body.append(f"    self.{name} = {name}")
        else:  # each instance gets a list of its own
            parameters.append(f"{name}=_UNSET")
            body.append(f"    self.{name} = [] if {name} is _UNSET else {name}")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or "    pass"), scope)  # noqa: S102 -- our own text
    return scope["__init__"]


def _field(name: str, annotation: Any, placement: Placement) -> Field:
    wire_type, optional = _wire_type(annotation)
    assert optional == (placement.nullable.last >= 0), f"{name}: nullable versions and `| None` go together"
    default = placement.default
    if default is _NO_DEFAULT:
        default = _zero(wire_type)
    return Field(name, wire_type, placement, default)


def _zero(wire_type: WireType) -> Any:
    match wire_type:
        case Scalar():
            return wire_type.zero
        case Array():
            return ()
        case struct_class:
            return struct_class()


def _wire_type(annotation: Any) -> tuple[WireType, bool]:
    origin = get_origin(annotation)
    if origin in {Union, types.UnionType}:
        members = [member for member in get_args(annotation) if member is not type(None)]
        assert len(members) == 1, annotation
        return _wire_type(members[0])[0], True
    if origin is list:
        return Array(_wire_type(get_args(annotation)[0])[0]), False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation, False
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Scalar):
            return mark, False
    raise TypeError(f"{annotation!r} is not a wire type")
