"""DescribeConfigs (32), v1-4. Shows the settings of topics and brokers, and where each value comes from."""

from tidelog.wire.declare import Bool, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class DescribeConfigsResource(Struct):
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    configuration_keys: list[String] | None = at("0+", nullable="0+")


@message(api=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = at("0+")
    include_synonyms: Bool = at("1+", default=False)
    include_documentation: Bool = at("3+", default=False)


@struct
class DescribeConfigsSynonym(Struct):
    name: String = at("1+")
    value: String | None = at("1+", nullable="0+")
    source: Int8 = at("1+")


@struct
class DescribeConfigsResourceResult(Struct):
    name: String = at("0+")
    value: String | None = at("0+", nullable="0+")
    read_only: Bool = at("0+")
    config_source: Int8 = at("1+", default=-1, ignorable=True)
    is_sensitive: Bool = at("0+")
    synonyms: list[DescribeConfigsSynonym] = at("1+", ignorable=True)
    config_type: Int8 = at("3+", default=0, ignorable=True)
    documentation: String | None = at("3+", default="", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    resource_type: Int8 = at("0+")
    resource_name: String = at("0+")
    configs: list[DescribeConfigsResourceResult] = at("0+")


@message(api=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[DescribeConfigsResult] = at("0+")
