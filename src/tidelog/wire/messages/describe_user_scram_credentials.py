"""DescribeUserScramCredentials (50), v0. Shows which users have SCRAM credentials, never the secrets."""

from tidelog.wire.declare import Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class UserName(Struct):
    name: String = at("0+")


@message(api=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = at("0+", nullable="0+")


@struct
class CredentialInfo(Struct):
    mechanism: Int8 = at("0+")
    iterations: Int32 = at("0+")


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: String = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = at("0+")


@message(api=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = at("0+")
