"""DescribeLogDirs (35), v1-5. Shows log directories and the size of the partitions in them."""

from tidelog.wire.declare import Bool, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@struct
class DescribableLogDirTopic(Struct):
    topic: String = at("0+")
    partitions: list[Int32] = at("0+")


@message(api=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = at("0+", nullable="0+")


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = at("0+")
    partition_size: Int64 = at("0+")
    offset_lag: Int64 = at("0+")
    is_future_key: Bool = at("0+")


@struct
class DescribeLogDirsTopic(Struct):
    name: String = at("0+")
    partitions: list[DescribeLogDirsPartition] = at("0+")


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16 = at("0+")
    log_dir: String = at("0+")
    topics: list[DescribeLogDirsTopic] = at("0+")
    total_bytes: Int64 = at("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = at("4+", default=-1, ignorable=True)
    is_cordoned: Bool = at("5+", default=False, ignorable=True)


@message(api=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = at("0+")
