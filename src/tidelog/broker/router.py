"""From frame to handler and back: reads the header, picks the handler, decodes, calls, encodes the reply.

The only place that turns errors into replies for whole requests. What cannot be answered, because its layout is not
known, closes the connection, as Kafka does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.api_versions import unsupported
from tidelog.handlers.handler import CLOSE, NO_REPLY, Context, Silence, Waiting
from tidelog.handlers.reply_cache import EncodedReply
from tidelog.net import outgoing as net
from tidelog.net.outgoing import CloseConnection, Outgoing, Parked
from tidelog.wire.api_keys import ApiKey, api_name
from tidelog.wire.codec import decode
from tidelog.wire.errors import DecodeError
from tidelog.wire.headers import encode_response, frame_response, read_request_header, skip_header_tags

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from tidelog.handlers.handler import Handler, Services
    from tidelog.net.connection import Connection
    from tidelog.net.outgoing import Outcome, Reply
    from tidelog.wire.declare import Message
    from tidelog.wire.headers import RequestHeader

logger = logging.getLogger(__name__)

_SILENCES = {NO_REPLY: net.NO_REPLY, CLOSE: net.CLOSE}


_LARGE_FRAME_BYTES = 1 << 16
"""Below this nothing can become large, and the setting need not be looked up."""


class Router:
    def __init__(self, services: Services) -> None:
        self._services = services

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        try:
            header = read_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        handler = self._services.served.get(header.api)
        if handler is None:
            raise CloseConnection(f"{api_name(header.api)} is not served")
        if not handler.versions[0] <= header.version <= handler.versions[1]:
            return self._wrong_version(handler, header)
        if len(frame) > _LARGE_FRAME_BYTES and header.api != ApiKey.PRODUCE:
            self._check_size(header, len(frame))
        request = _decode(handler, header, frame)
        ctx = Context(self._services, header.version, header.client_id, connection.listener_name)
        try:
            answer = handler.handle(ctx, request)
        except BrokerError as error:
            answer = _refusal(handler, request, error.code, error.message)
        except Exception:
            logger.exception("%s v%d failed", api_name(header.api), header.version)
            answer = _refusal(handler, request, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")
        if isinstance(answer, handler.response):
            return _encode(answer, header)
        if isinstance(answer, Waiting | Silence):
            return self._later(answer, header)
        if isinstance(answer, EncodedReply):
            return Outgoing(frame_response(handler.response, answer.body, header.version, header.correlation_id))
        return self._finish(answer, handler, request, header)

    async def _finish(
        self, coroutine: Coroutine[Any, Any, Any], handler: Handler[Any, Any], request: Message, header: RequestHeader
    ) -> Reply | Parked:
        try:
            answer = await coroutine
        except BrokerError as error:
            answer = _refusal(handler, request, error.code, error.message)
        except Exception:
            logger.exception("%s v%d failed", api_name(header.api), header.version)
            answer = _refusal(handler, request, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")
        if isinstance(answer, handler.response):
            return _encode(answer, header)
        return self._later(answer, header)

    def _later(self, answer: Waiting[Any] | Silence, header: RequestHeader) -> Reply | Parked:
        if isinstance(answer, Silence):
            return _SILENCES[answer]
        future: asyncio.Future[Reply] = self._services.loop.create_future()
        waiting = answer

        def deliver(reply: Message) -> None:
            if not future.done():
                future.set_result(_encode(reply, header))

        def settle(done: asyncio.Future[Reply]) -> None:
            if done.cancelled():
                waiting.abandon()

        waiting.then(deliver)
        future.add_done_callback(settle)
        return Parked(future)

    def _check_size(self, header: RequestHeader, size: int) -> None:
        limit = self._services.config.tidelog_request_max_bytes
        if size > limit:
            raise CloseConnection(
                f"{api_name(header.api)} of {size} bytes: only Produce may exceed tidelog.request.max.bytes ({limit})"
            )

    def _wrong_version(self, handler: Handler[Any, Any], header: RequestHeader) -> Outcome:
        if header.api == ApiKey.API_VERSIONS:
            data, _ = encode_response(unsupported(self._services.served), 0, header.correlation_id)
            return Outgoing(data)
        first, last = handler.versions
        raise CloseConnection(f"{api_name(header.api)} is served in versions {first} to {last}, not {header.version}")


def _decode(handler: Handler[Any, Any], header: RequestHeader, frame: memoryview) -> Message:
    try:
        body = header.body
        if header.version in handler.request.FLEXIBLE:
            body = skip_header_tags(frame, body)
        message: Message = decode(handler.request, frame, header.version, body)
    except DecodeError as error:
        raise CloseConnection(str(error)) from error
    return message


def _encode(reply: Message, header: RequestHeader) -> Outgoing:
    data, splices = encode_response(reply, header.version, header.correlation_id)
    return Outgoing(data, splices)  # type: ignore[arg-type] # what handlers splice are file slices, which are regions


def _refusal(handler: Handler[Any, Any], request: Message, code: ErrorCode, message: str) -> Message:
    """The reply that refuses a whole request. APIs that have no place for it close the connection."""
    if handler.refuse is not None:
        refused: Message = handler.refuse(request, code, message)
        return refused
    if any(field.name == "error_code" for field in handler.response.FIELDS):
        reply: Message = handler.response(error_code=code)
        return reply
    raise CloseConnection(f"{handler.request.__name__} failed: {message}")
