"""How the bytes of keys and values are read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidelog.pipelines.definition.errors import PipelineError, nearest
from tidelog.pipelines.definition.schema_types import check_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import StructType

    SchemaLike = str | Mapping[str, str] | StructType


@dataclass(frozen=True, slots=True)
class Format:
    kind: Literal["json", "avro", "protobuf", "text", "binary"]
    schema: str | None = None
    """Spark's DDL or JSON; of Avro the schema itself, or the file that holds it. None: found out from the records."""
    registry: str | None = None
    """The schema registry's address. Values then begin with the id of their schema."""
    framed: bool = False
    """Values begin with the id of a schema, which is not needed to read them."""
    message: str | None = None
    """Protobuf: `module:Message`, or a message's full name inside `descriptors`."""
    descriptors: str | None = None
    """Protobuf: the file that `protoc --descriptor_set_out` wrote."""
    files: bytes | None = None
    """Protobuf, once the message was found: the descriptors themselves. `message` is then its full name."""
    column: str | None = None
    """Text and bytes: the column they are put into."""


def json(schema: SchemaLike | None = None, *, framed: bool = False) -> Format:
    """`schema` as in SQL, 'id long, at timestamp', or {'id': 'long'}, or a StructType; without one, from a sample."""
    return Format("json", schema=schema_text(schema), framed=framed)


def avro(schema: str | dict[str, Any] | None = None, *, registry: str | None = None) -> Format:
    """`schema` is Avro's JSON, or the path of a .avsc file; with a `registry` the schema is found there."""
    if schema is None and registry is None:
        raise PipelineError("avro needs a schema, a file with one, or a registry that has it")
    if isinstance(schema, dict):
        import json as standard_json  # noqa: PLC0415 - the name is taken here

        schema = standard_json.dumps(schema)
    return Format("avro", schema=schema, registry=registry)


def protobuf(
    message: str, *, descriptors: str | None = None, framed: bool = False, registry: str | None = None
) -> Format:
    """`message` is 'module:Message' of generated Python code, or a full name with a file of `descriptors`."""
    if descriptors is None and ":" not in message:
        raise PipelineError(
            f"protobuf message {message!r}: name generated Python code as 'module:Message', or give descriptors, "
            "the file that `protoc --descriptor_set_out` writes"
        )
    return Format(
        "protobuf", message=message, descriptors=descriptors, framed=framed or registry is not None, registry=registry
    )


def text(column: str = "text") -> Format:
    return Format("text", column=column)


def binary(column: str = "value") -> Format:
    return Format("binary", column=column)


FORMATS: dict[str, Callable[..., Format]] = {
    "json": json,
    "avro": avro,
    "protobuf": protobuf,
    "text": text,
    "binary": binary,
}


def as_format(given: Any, what: str) -> Format:
    """From a Format, a format's name, or a mapping with `format` and its keywords."""
    if isinstance(given, Format):
        return given
    if isinstance(given, str):
        given = {"format": given}
    if not isinstance(given, dict) or not isinstance(given.get("format"), str):
        raise PipelineError(f"{what} is {given!r}: give a format, one of {', '.join(FORMATS)}")
    keywords = {key: value for key, value in given.items() if key != "format"}
    build: Callable[..., Format] | None = FORMATS.get(given["format"])
    if build is None:
        raise PipelineError(f"{what}: there is no format {given['format']!r}: {nearest(given['format'], FORMATS)}")
    try:
        return build(**keywords)
    except TypeError as error:
        raise PipelineError(f"{what}: format {given['format']}: {error}") from None
    except PipelineError as error:
        raise PipelineError(f"{what}: {error}") from None


def schema_text(schema: Any) -> str | None:
    """What Spark can read: DDL, or its JSON."""
    if isinstance(schema, dict):
        schema = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        check_columns(schema)
    if schema is None or isinstance(schema, str):
        return schema
    if hasattr(schema, "jsonValue"):
        return str(schema.json())
    raise PipelineError(f"a schema is text such as 'id long, at timestamp', a mapping or a StructType, not {schema!r}")
