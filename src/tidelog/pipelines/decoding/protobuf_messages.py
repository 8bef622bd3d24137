"""A Protobuf message as a whole that can be sent: found by the driver, its class made again in each worker.

The module that protoc has generated, or the file of descriptors, is on the driver's machine only. What a worker gets is
all that the message is made of, as bytes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.pipelines.definition.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.pipelines.definition.formats import Format


def with_message(given: Format, beside: Path) -> Format:
    """As workers need it. The message is looked for beside the pipeline. PipelineError says why it cannot be had."""
    assert given.message is not None
    try:
        if given.descriptors is not None:
            name, files = given.message, (beside / given.descriptors).read_bytes()
        else:
            descriptor = _generated(given.message, beside)
            name, files = descriptor.full_name, _files(descriptor.file)
        _made(name, files)
    except PipelineError:
        raise
    except Exception as error:  # a module may raise anything, and so may Protobuf over a file that is none of its own
        raise PipelineError(f"protobuf message {given.message} cannot be loaded: {_told(error)}") from error
    return replace(given, message=name, files=files)


def message_class(given: Format) -> Any:
    """Of a format `with_message`, in whatever process."""
    assert given.message is not None
    assert given.files is not None, "the driver has not looked for the message"
    return _made(given.message, given.files)


@lru_cache(maxsize=64)
def _made(name: str, files: bytes) -> Any:
    """In a pool of its own: that of the process may hold another file of the same name. Kept, as each task asks."""
    pools = import_module("google.protobuf.descriptor_pool")
    factory = import_module("google.protobuf.message_factory")
    pool = pools.DescriptorPool()
    for file in import_module("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _generated(message: str, beside: Path) -> Any:
    if str(beside) not in sys.path:
        sys.path.insert(0, str(beside))
    module, _, name = message.partition(":")
    part: Any = import_module(module)
    for each in name.split("."):
        part = getattr(part, each)
    if not hasattr(part, "DESCRIPTOR"):
        raise PipelineError(f"{message} is no class that protoc has generated")
    return part.DESCRIPTOR


def _files(file: Any) -> bytes:
    """The file and all that it imports, each after what it needs, as `protoc --include_imports` has them."""
    ordered: dict[str, Any] = {}

    def add(each: Any) -> None:
        if each.name not in ordered:
            for needed in each.dependencies:
                add(needed)
            ordered[each.name] = each

    add(file)
    whole = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet()
    for each in ordered.values():
        each.CopyToProto(whole.file.add())
    return bytes(whole.SerializeToString())


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = str(error)
    return f"{text} (protoc's --include_imports adds it)" if "Depends on file" in text else text
