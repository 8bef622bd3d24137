"""The clients without `await`: the same names, the same arguments, plain `with` and plain `for`.

    from tidelog.client.blocking import Consumer, Producer

    with Producer("localhost:9092") as producer:
        producer.send("orders", b"value", key=b"customer-17")

They work in scripts, threads and notebooks, also inside a running event loop. All of them share one thread, in which
the asyncio clients do the work; it ends with the program, and closes what is still open.

Ctrl-C ends whatever is waited for. A `with` block then takes some seconds at most: a consumer leaves its group, a
producer delivers what is buffered or aborts its transaction, and brokers that do not answer are not waited for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.client.blocking.producer import Producer

_HOMES = {"Admin": "admin", "Consumer": "consumer", "Producer": "producer"}

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
