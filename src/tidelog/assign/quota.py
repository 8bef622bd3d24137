"""How many partitions each member may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def fair_sizes(held: Sequence[int], total: int) -> list[int]:
    """Shares of `total` that differ by one at most, for members that hold so many now.

    The larger shares go first to those who hold that many, so that nobody gives away what somebody must take anyway.
    """
    if not held:
        return []
    quota, extras = divmod(total, len(held))
    sizes = [quota] * len(held)
    for place, count in enumerate(held):
        if extras and count > quota:
            sizes[place] += 1
            extras -= 1
    for place, count in enumerate(held):
        if extras and count <= quota:
            sizes[place] += 1
            extras -= 1
    return sizes
