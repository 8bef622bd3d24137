from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.lines import LineSplitter, read_lines

if TYPE_CHECKING:
    from pathlib import Path


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=30))
def test_lines_do_not_depend_on_how_they_are_chopped(data: bytes, sizes: list[int]) -> None:
    splitter, lines, position = LineSplitter(), [], 0
    for size in [*sizes, len(data)]:
        lines += splitter.feed(data[position : position + size])
        position += size
    lines += splitter.finish()
    expected = data.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter(line_bytes_max=10)
    splitter.feed(b"ok\n" + b"x" * 10)
    with pytest.raises(click.ClickException, match="line 2 is longer than 10 bytes"):
        splitter.feed(b"x")


async def collect(fd: int) -> list[bytes]:
    return [line async for lines in read_lines(fd) for line in lines]


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(100_000)) + b"last")
    fd = os.open(path, os.O_RDONLY)
    try:
        lines = asyncio.run(collect(fd))
    finally:
        os.close(fd)
    assert lines == [b"%d" % number for number in range(100_000)] + [b"last"]


def test_typed_lines_come_one_by_one() -> None:
    async def scenario() -> None:
        reader, writer = os.pipe()
        lines = read_lines(reader)
        for number in range(3):
            os.write(writer, b"%d\n" % number)
            assert await anext(lines) == [b"%d" % number]
        os.close(writer)
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
        os.close(reader)

    asyncio.run(scenario())


def test_input_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(click.ClickException, match="the input cannot be read"):
            asyncio.run(collect(fd))
    finally:
        os.close(fd)
