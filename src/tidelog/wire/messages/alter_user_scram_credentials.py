"""AlterUserScramCredentials (51), v0. Stores or deletes SCRAM credentials."""

from tidelog.wire.declare import Bytes, Int8, Int16, Int32, Message, String, Struct, at, message, struct


@struct
class ScramCredentialDeletion(Struct):
    name: String = at("0+")
    mechanism: Int8 = at("0+")


@struct
class ScramCredentialUpsertion(Struct):
    name: String = at("0+")
    mechanism: Int8 = at("0+")
    iterations: Int32 = at("0+")
    salt: Bytes = at("0+")
    salted_password: Bytes = at("0+")


@message(api=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = at("0+")
    upsertions: list[ScramCredentialUpsertion] = at("0+")


@struct
class AlterUserScramCredentialsResult(Struct):
    user: String = at("0+")
    error_code: Int16 = at("0+")
    error_message: String | None = at("0+", nullable="0+")


@message(api=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = at("0+")
    results: list[AlterUserScramCredentialsResult] = at("0+")
