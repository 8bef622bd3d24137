"""ApiVersions (18), v0-4. Tells which requests the broker understands, and in which versions."""

from tidelog.wire.declare import EMPTY, Bool, Int16, Int32, Int64, Message, String, Struct, at, message, struct


@message(api=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: String = at("3+", default="", ignorable=True)
    client_software_version: String = at("3+", default="", ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: Int16 = at("0+")
    min_version: Int16 = at("0+")
    max_version: Int16 = at("0+")


@struct
class SupportedFeatureKey(Struct):
    name: String = at("3+", default="")
    min_version: Int16 = at("3+", default=0)
    max_version: Int16 = at("3+", default=0)


@struct
class FinalizedFeatureKey(Struct):
    name: String = at("3+", default="")
    max_version_level: Int16 = at("3+", default=0)
    min_version_level: Int16 = at("3+", default=0)


@message(api=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: Int16 = at("0+")
    api_keys: list[ApiVersion] = at("0+")
    throttle_time_ms: Int32 = at("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = at("3+", default=EMPTY, tagged="3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = at("3+", default=-1, tagged="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = at("3+", default=EMPTY, tagged="3+", tag=2, ignorable=True)
    zk_migration_ready: Bool = at("3+", default=False, tagged="3+", tag=3, ignorable=True)
