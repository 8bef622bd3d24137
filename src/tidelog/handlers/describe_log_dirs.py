"""DescribeLogDirs (35), v1-5. Shows log directories and the size of the partitions in them.

v2 flexible · v3 error code at the top · v4 total and usable bytes · v5 cordoned directories
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidelog.handlers.handler import Context, Handler
from tidelog.types import TopicPartition
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.storage.log import Log


def handle(ctx: Context, req: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[TopicPartition] | None = None
    if req.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in req.topics for index in topic.partitions}
    by_directory: defaultdict[str, defaultdict[str, list[Log]]] = defaultdict(lambda: defaultdict(list))
    store = ctx.services.store
    for partition in ctx.services.replicas:
        if wanted is None or partition.topic_partition in wanted:
            directory = store.directory_of(partition.topic_partition)
            by_directory[directory][partition.topic_partition.topic].append(partition.log)
    results = []
    for directory in store.directories:
        total, usable = store.disk_usage(directory)
        results.append(
            DescribeLogDirsResult(
                error_code=0,
                log_dir=directory,
                topics=[_topic(name, logs) for name, logs in by_directory[directory].items()],
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def _topic(name: str, logs: list[Log]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=log.topic_partition.partition,
                partition_size=log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for log in logs
        ],
    )


HANDLER = Handler(DescribeLogDirsRequest, DescribeLogDirsResponse, versions=(1, 5), handle=handle)
