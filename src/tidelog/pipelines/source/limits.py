"""How much of what waits goes into one micro-batch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")


def share_out(waiting: Mapping[K, int], limit: int, turn: int = 0) -> dict[K, int]:
    """Divides `limit` in proportion to what waits; never more in all, and all of it unless less waits.

    Everybody for whom something waits gets at least one, so that a busy partition does not starve the others. Where
    the limit is too small for that, they take turns: `turn` is any number that changes from one batch to the next.
    """
    eager = {key: count for key, count in waiting.items() if count > 0}
    total = sum(eager.values())
    if total <= limit:
        return {key: max(count, 0) for key, count in waiting.items()}
    shares = dict.fromkeys(waiting, 0)
    if limit <= len(eager):
        keys = list(eager)
        for step in range(limit):
            shares[keys[(turn + step) % len(keys)]] = 1
        return shares
    for key, count in eager.items():
        shares[key] = max(1, limit * count // total)
    rounded_down = [key for key in eager if limit * eager[key] >= total]
    by_remainder = sorted(rounded_down, key=lambda key: limit * eager[key] % total, reverse=True)
    for key in by_remainder[: max(0, limit - sum(shares.values()))]:
        shares[key] += 1
    # Those that got one though less was due to them, got it from the largest.
    for _ in range(sum(shares.values()) - limit):
        shares[max(shares, key=shares.__getitem__)] -= 1
    return shares


def held_back(waiting_total: int, fewest: int | None, waited_s: float, longest_s: float) -> bool:
    """Whether to wait for more: there is less than `fewest`, and not for too long yet."""
    return fewest is not None and waiting_total < fewest and waited_s < longest_s


def limit_by_bytes(
    waiting: Mapping[K, int], bytes_per_offset: Mapping[K, float], limit_bytes: int, turn: int = 0
) -> dict[K, int]:
    """As `share_out`, with a limit in bytes and what an offset of each partition takes, as far as it is known."""
    sizes = {
        key: max(1, round(count * bytes_per_offset.get(key, 1.0))) if count > 0 else 0 for key, count in waiting.items()
    }
    shares = share_out(sizes, limit_bytes, turn)
    return {
        key: min(count, max(1, int(shares[key] / sizes[key] * count))) if shares[key] > 0 else 0
        for key, count in waiting.items()
    }
