"""The message shop.Order, as `protoc` would leave it: in a file of descriptors, and as a Python module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "struct<id:bigint,big:decimal(20,0),tags:array<string>,kind:string,at:timestamp,note:string,raw:binary,"
    "counts:map<string,int>>"
)


def descriptors(path: Path, *, imports: bool = True) -> Path:
    """As `protoc --descriptor_set_out` writes them, with or without `--include_imports`."""
    files = descriptor_pb2.FileDescriptorSet()
    for dependency in (timestamp_pb2, wrappers_pb2) if imports else ():
        dependency.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(_order())
    path.write_bytes(files.SerializeToString())
    return path


def module(path: Path) -> Path:
    """As `protoc --python_out` writes it."""
    path.write_text(
        "from google.protobuf import descriptor_pool, timestamp_pb2, wrappers_pb2\n"
        "from google.protobuf.internal import builder\n\n"
        f"DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({_order().SerializeToString()!r})\n"
        "builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())\n"
        f"builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, {path.stem!r}, globals())\n"
    )
    return path


def _order() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="GIFT", number=1)
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="big", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="tags", number=3, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    order.field.add(name="kind", number=4, type=field.TYPE_ENUM, type_name=".shop.Kind", label=field.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=5, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=field.LABEL_OPTIONAL
    )
    order.field.add(
        name="note",
        number=6,
        type=field.TYPE_MESSAGE,
        type_name=".google.protobuf.StringValue",
        label=field.LABEL_OPTIONAL,
    )
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="counts",
        number=8,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=field.LABEL_REPEATED,
    )
    return file
