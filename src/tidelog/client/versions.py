"""Which version of each request to use: the newest that both sides know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client.errors import NotSupported
from tidelog.wire.api_keys import api_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.wire.declare import Message

Offered = dict[int, tuple[int, int]]
"""API key -> first and last version that the broker serves."""


def choose_version(offered: Mapping[int, tuple[int, int]], request: type[Message], limit: int | None = None) -> int:
    """`limit` keeps to versions at or below it, for a caller that cannot fill in what newer ones need."""
    if request.API not in offered:
        raise NotSupported(
            f"the broker does not offer {api_name(request.API)}: what was asked for cannot be done with it"
        )
    first, last = offered[request.API]
    ours = request.VERSIONS
    version = min(last, ours.last) if limit is None else min(last, ours.last, limit)
    if version < first or version < ours.first:
        raise NotSupported(
            f"{api_name(request.API)}: the broker speaks versions {first} to {last}, "
            f"this client {ours.first} to {ours.last if limit is None else min(limit, ours.last)}"
        )
    return version
