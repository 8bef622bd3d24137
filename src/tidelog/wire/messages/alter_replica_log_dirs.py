"""AlterReplicaLogDirs (34), v1-2. Moves replicas to another log directory of the same broker."""

from tidelog.wire.declare import Int16, Int32, Message, String, Struct, at, message, struct


@struct
class AlterReplicaLogDirTopic(Struct):
    name: String = at("0+")
    partitions: list[Int32] = at("0+")


@struct
class AlterReplicaLogDir(Struct):
    path: String = at("0+")
    topics: list[AlterReplicaLogDirTopic] = at("0+")


@message(api=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = at("0+")


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = at("0+")
    error_code: Int16 = at("0+")


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = at("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = at("0+")


@message(api=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[AlterReplicaLogDirTopicResult] = at("0+")
