"""A record as JSON: text where it is text, base64 where it is not."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.fetching import ConsumerRecord
    from tidelog.records.record import Record


def record_fields(record: Record | ConsumerRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_text(record.key),
        "value": json_text(record.value),
        "headers": [[json_text(header_name(name)), json_text(value)] for name, value in record.headers],
    }


def header_name(name: str) -> bytes:
    """The bytes that were sent, also where they are not UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def json_text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
