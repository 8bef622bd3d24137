"""Records that leave nothing out: absent, empty and full keys, values and headers, from no byte to one mebibyte."""

from __future__ import annotations

import random
from itertools import cycle

from drivers import Headers, Record

MEBIBYTE = 1 << 20
BATCH_BYTES_MAX = 1_100_000
"""Room for one record of a mebibyte with its key and headers."""

TOPIC_CONFIG = {
    "max.message.bytes": str(BATCH_BYTES_MAX + 100_000),
    # The samples' timestamps lie in the past; they must not be old enough to be thrown away.
    "retention.ms": "-1",
}

_START_MS = 1_700_000_000_000

# Neither ascending nor without repetition: a batch's first timestamp is then neither its least nor its greatest.
_TIMESTAMP_STEPS_MS = (0, 1, -1, 86_400_000, -86_400_000, 0, 17)

_HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", b"\x00\x01\x02"),),
    (("absent", None),),
    (("empty", b""),),
    (("twice", b"first"), ("between", b"x"), ("twice", b"second")),
    (("twice", None), ("twice", b"")),
    (("", b"a header without a name"),),
    (("größe-名前", "zażółć".encode()),),
    (("long", bytes(range(256)) * 20),),
)


def sample_records(seed: int, partition: int = 0) -> list[Record]:
    """The same records for the same seed, in one fixed order."""
    noise = random.Random(seed)
    keys = cycle((None, b"", b"k", b"\x00\xff", noise.randbytes(300)))
    headers = cycle(_HEADERS)
    steps = cycle(_TIMESTAMP_STEPS_MS)
    return [
        Record(next(keys), value, next(headers), _START_MS + place + next(steps), partition)
        for place, value in enumerate(_values(noise))
    ]


def _values(noise: random.Random) -> list[bytes | None]:
    small: list[bytes | None] = [None, b"", b"\x00", b"a", b"\xff\xfe"]
    middling = [noise.randbytes(size) for size in (63, 64, 127, 128, 1_000, 8_191, 8_192, 65_536, 200_000)]
    squeezable = [b"tide " * count for count in (1, 20, 400, 30_000)]
    large = [noise.randbytes(MEBIBYTE), b"\x00" * MEBIBYTE, noise.randbytes(1_000_000)]
    # Small ones on both sides of the large ones, so that batches of many records and of one alternate.
    return [*small, *middling, *large, *squeezable, *small, b"tide " * 2_000, *small]
