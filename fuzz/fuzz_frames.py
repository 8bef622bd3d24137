"""Frames: however a stream is chopped up it gives the same frames, and only FrameError is ever raised.

python fuzz/fuzz_frames.py -max_total_time=60
"""
# ruff: noqa: INP001 -- scripts, not a package

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tidelog"]):
    from tidelog.net.framing import LENGTH_BYTES, FrameDecoder, FrameError

MAX_BYTES = 1000


def frames_of(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    """The frames before the first bad one, and whether there was a bad one."""
    decoder = FrameDecoder(MAX_BYTES)
    frames: list[bytes] = []
    for chunk in chunks:
        try:
            frames += decoder.feed(chunk)
        except FrameError:
            return frames, True
        assert decoder.held_bytes < LENGTH_BYTES + MAX_BYTES, "more is held than the largest frame"
    return frames, False


def one_input(data: bytes) -> None:
    if not data:
        return
    step, stream = data[0] + 1, data[1:]
    chopped, refused = frames_of([stream[at : at + step] for at in range(0, len(stream), step)])
    byte_by_byte, refused_too = frames_of([stream[at : at + 1] for at in range(len(stream))])
    assert refused == refused_too
    # A chunk that ends in a bad frame is refused as a whole, so fewer frames may come out of larger chunks.
    assert byte_by_byte[: len(chopped)] == chopped
    if not refused:
        assert byte_by_byte == chopped


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
