"""Messages of Protobuf are found by the driver, and made again by workers that have neither module nor file."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import protobuf_orders
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_type

from tidelog.pipelines import PipelineError, protobuf
from tidelog.pipelines.decoding.arrow_decoding import ArrowDecoding
from tidelog.pipelines.decoding.protobuf_messages import message_class, with_message
from tidelog.pipelines.decoding.readers import columns_of
from tidelog.pipelines.runner.encoding import encoding

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.pipelines.definition.formats import Format

WORKER = """
import pickle, sys

work, batch = pickle.load(sys.stdin.buffer)
rows = [row for made in work(iter([batch])) for row in made.to_pylist()]
assert not any(name.startswith("orders_") for name in sys.modules)
pickle.dump(rows, sys.stdout.buffer)
"""
ROW = {
    "id": 5,
    "big": Decimal(2**64 - 1),
    "tags": ["a"],
    "kind": "GIFT",
    "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "note": "hello",
    "raw": b"\x00",
}


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def in_a_worker(work: Any, batch: Any, cwd: Path) -> list[dict[str, Any]]:
    """In a process that has nothing but what it is sent."""
    sent = cloudpickle.dumps((work, batch))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", WORKER], input=sent, capture_output=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr.decode()
    rows: list[dict[str, Any]] = pickle.loads(done.stdout)
    return rows


@pytest.mark.parametrize("way", ["module", "descriptors"])
def test_workers_need_neither_module_nor_file(tmp_path: Path, way: str) -> None:
    beside, elsewhere = tmp_path / "beside", tmp_path / "elsewhere"
    beside.mkdir()
    elsewhere.mkdir()
    if way == "module":
        file = protobuf_orders.module(beside / "orders_sent_pb2.py")
        given = protobuf("orders_sent_pb2:Order")
    else:
        file = protobuf_orders.descriptors(beside / "shop.desc")
        given = protobuf("shop.Order", descriptors="shop.desc")
    writing = encoding(given, "orders", beside)
    read = with_message(given, beside)
    assert columns_of(read).simpleString() == protobuf_orders.COLUMNS
    arrow_type: Any = to_arrow_type(columns_of(read), timezone="UTC")
    reading = ArrowDecoding(read, "value", "decoded", "error", arrow_type)
    file.unlink()

    (written,) = in_a_worker(writing, pa.RecordBatch.from_pylist([{"value": ROW}]), elsewhere)
    batch = pa.RecordBatch.from_pylist([written, {"value": b"\xff"}], schema=pa.schema([("value", pa.binary())]))
    good, bad = in_a_worker(reading, batch, elsewhere)
    assert (good["decoded"], good["error"]) == ({**ROW, "counts": []}, None)
    assert bad["decoded"] is None
    assert "Error" in bad["error"]


def test_a_class_is_made_once_in_a_process(tmp_path: Path) -> None:
    given = with_message(protobuf("google.protobuf.timestamp_pb2:Timestamp"), tmp_path)
    again: Format = pickle.loads(pickle.dumps(given))
    assert message_class(again) is message_class(given)


def test_messages_that_are_inside_others(tmp_path: Path) -> None:
    given = with_message(protobuf("google.protobuf.descriptor_pb2:DescriptorProto.ExtensionRange"), tmp_path)
    assert given.message == "google.protobuf.DescriptorProto.ExtensionRange"
    assert [field.name for field in message_class(given).DESCRIPTOR.fields][:2] == ["start", "end"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("no_such_module:Order", "cannot be loaded: No module named"),
        ("json:NoSuchThing", "cannot be loaded"),
        ("json:loads", "no class that protoc has generated"),
    ],
)
def test_classes_that_are_not_there(tmp_path: Path, message: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        with_message(protobuf(message), tmp_path)


def test_files_that_do_not_hold_the_message(tmp_path: Path) -> None:
    (tmp_path / "text.desc").write_text("no descriptors")
    protobuf_orders.descriptors(tmp_path / "whole.desc")
    protobuf_orders.descriptors(tmp_path / "alone.desc", imports=False)
    for file, message, told in (
        ("none.desc", "shop.Order", "none.desc: No such file"),
        ("text.desc", "shop.Order", "shop.Order cannot be loaded"),
        ("whole.desc", "shop.Parcel", "shop.Parcel"),
        ("alone.desc", "shop.Order", "--include_imports"),
    ):
        with pytest.raises(PipelineError, match=told):
            with_message(protobuf(message, descriptors=file), tmp_path)
