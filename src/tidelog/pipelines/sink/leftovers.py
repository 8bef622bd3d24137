"""Which transactions are open that nobody may be going to end."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.client.errors import NotSupported

if TYPE_CHECKING:
    from tidelog.client.admin import Admin


async def open_transactions(admin: Admin, prefix: str, *, longer_than_ms: int = -1) -> list[str]:
    """Transactional ids that begin like this. None are found where brokers cannot list them."""
    for pattern in (re.escape(prefix) + ".*", None):
        with suppress(NotSupported):  # older brokers know no patterns, then no durations, then no lists at all
            listed = await admin.list_transactions(states=["Ongoing"], pattern=pattern, longer_than_ms=longer_than_ms)
            return [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]
    return []
