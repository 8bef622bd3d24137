"""What can go wrong on the client's side of the wire.

BrokerError              the broker answered, and refused; `code` is Kafka's error code (from tidelog.errors)
ClientError
├── BrokersUnreachable   no broker of the list could be reached
├── ConnectionLost       the connection broke before the answer came: the request may or may not have been carried out
├── TimedOut             no success before the deadline; the message names the last thing that stood in the way
├── NotSupported         the broker is too old or too new for what was asked, or does not do it at all
├── AuthenticationFailed the broker does not believe who the client says it is, or the client not the broker
├── BadReply             the broker's answer is not what the protocol promises
├── RecordTooLarge       a record that no batch of the producer may hold
├── OffsetOutOfRange     the partition no longer holds, or never held, the offset asked for
│   └── LogTruncated     records that were read are gone: a leader was elected that did not have them
├── NoOffset             the group has no commit for a partition, and auto_offset_reset does not say where to begin
├── PositionUnknown      where a partition is read has not been found out yet
├── CommitFailed         the group has moved on: the partitions may be read by another member from the last commit on
├── NotReadable          a deserializer cannot read a record
├── NotWritable          a serializer cannot write a key or a value
├── NeedsPackage         a package that this call needs is not installed
├── InvalidState         the call makes no sense now; the message names the one that does
├── TransactionFailed    the transaction cannot be committed: abort it, and do its work again
├── ProducerStopped      the producer cannot go on: close it
│   └── ProducerFenced   another producer has taken over the transactional id
└── Closed               the producer, consumer or admin is closed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.types import TopicPartition


class ClientError(Exception):
    pass


class BrokersUnreachable(ClientError):  # noqa: N818 - named for the fact it reports
    """`failures` holds (address, reason) for every address that was tried."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        self.failures = tuple(failures)
        tried = "; ".join(f"{address}: {reason}" for address, reason in failures)
        super().__init__(f"no broker could be reached ({tried})")


class ConnectionLost(ClientError):  # noqa: N818
    pass


class TimedOut(ClientError):  # noqa: N818
    pass


class NotSupported(ClientError):  # noqa: N818
    pass


class AuthenticationFailed(ClientError):  # noqa: N818
    pass


class NeedsPackage(ClientError):  # noqa: N818
    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'tidelog[{extra}]'")


class BadReply(ClientError):  # noqa: N818
    pass


class RecordTooLarge(ClientError):  # noqa: N818
    pass


class OffsetOutOfRange(ClientError):  # noqa: N818
    def __init__(self, partition: TopicPartition, offset: int, message: str = "") -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            message
            or f"offset {offset} is not in {partition}: it was deleted, or was never written; "
            "seek to another offset, or set auto_offset_reset to earliest or latest"
        )


class LogTruncated(OffsetOutOfRange):
    """`offset` is the position; `safe_offset`, if it is known, where what was read and what is there part."""

    def __init__(self, partition: TopicPartition, offset: int, safe_offset: int | None) -> None:
        self.safe_offset = safe_offset
        lost = "records" if safe_offset is None else f"the records from offset {safe_offset}"
        super().__init__(
            partition,
            offset,
            f"{lost} to {offset} of {partition} that were read are not there any more: a leader was elected that did "
            "not have them. Others may be in their place; undo what was made of the lost ones, and seek to "
            + ("where to go on" if safe_offset is None else f"offset {safe_offset}"),
        )


class NoOffset(ClientError):  # noqa: N818
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        super().__init__(
            f"the group has committed nothing for {partition}: seek to an offset, "
            "or set auto_offset_reset to earliest or latest"
        )


class PositionUnknown(ClientError):  # noqa: N818
    pass


class CommitFailed(ClientError):  # noqa: N818
    pass


class NotReadable(ClientError):  # noqa: N818
    """`partition` and `offset` tell which record; its position is still before it."""

    def __init__(self, partition: TopicPartition, offset: int, part: str, reason: Exception) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"the {part} of offset {offset} in {partition} cannot be read ({type(reason).__name__}: {reason}); "
            f"seek to offset {offset + 1} to pass it over"
        )


class NotWritable(ClientError):  # noqa: N818
    pass


class InvalidState(ClientError):  # noqa: N818
    pass


class TransactionFailed(ClientError):  # noqa: N818
    pass


class ProducerStopped(ClientError):  # noqa: N818
    pass


class ProducerFenced(ProducerStopped):
    pass


class Closed(ClientError):  # noqa: N818
    pass


def error_code(number: int) -> ErrorCode:
    """Codes newer than this client count as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, message: str | None = None, about: str = "") -> BrokerError:
    """The exception for an error code in a reply; `about` names the topic or partition it is about."""
    code = error_code(number)
    text = message or (code.name if code == number else f"error code {number}")
    named = bool(message) and about.rpartition(" ")[2] in text
    return BrokerError(code, f"{about}: {text}" if about and not named else text)


def check(number: int, message: str | None = None, about: str = "") -> None:
    if number:
        raise refusal(number, message, about)


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed when it is repeated."""
    if isinstance(error, BrokerError):
        return error.code.retriable
    return isinstance(error, ConnectionLost | BrokersUnreachable)
