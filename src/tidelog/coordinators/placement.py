"""Which partition of an internal topic holds the state of a group or a transactional id."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """The hash that Java gives a string: over its UTF-16 units, in signed 32 bits."""
    value = 0
    units = text.encode("utf-16-be", errors="surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Kafka masks the sign bit; it does not negate, so that the smallest hash has a place too."""
    return (java_string_hash(key) & 0x7FFFFFFF) % partitions
