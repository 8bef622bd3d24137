"""MurmurHash2 of keys, by which all Kafka clients send records of one key to the same partition."""

from __future__ import annotations

from tidelog.records.compiled import rows as compiled_rows

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_M = 0x5BD1_E995
_R = 24


def murmur2_pure(data: bytes) -> int:
    """32 bit, with the seed that Kafka's clients share; unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> _R)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


murmur2 = murmur2_pure if compiled_rows is None else compiled_rows.murmur2
