"""A process that writes its part of another's transaction: reads the handle from stdin, prints what it did."""

from __future__ import annotations

import asyncio
import sys

from tidelog.client import Producer, TransactionHandle


async def main(bootstrap: str, count: int) -> None:
    handle = TransactionHandle.from_json(sys.stdin.read())
    async with Producer.join_transaction(bootstrap, handle, linger_ms=1) as writer:
        for (topic, partition), _ in handle.partitions:
            for number in range(count):
                await writer.send(topic, b"%d-%d" % (partition, number), partition=partition)
        sys.stdout.write((await writer.leave()).to_json())


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
