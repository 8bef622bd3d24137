"""From frame to handler and back: reads the header, picks the handler, decodes, calls, encodes the reply.

The only place that turns errors into replies for whole requests. What cannot be answered, because its layout is not
known, closes the connection, as Kafka does.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.api_versions import unsupported
from tidelog.handlers.handler import CLOSE, NO_REPLY, Context, Silence, Waiting
from tidelog.handlers.reply_cache import EncodedReply
from tidelog.handlers.session import Session
from tidelog.net import outgoing as net
from tidelog.net.outgoing import CloseConnection, Outgoing, Parked
from tidelog.wire.api_keys import ApiKey, api_name
from tidelog.wire.errors import DecodeError
from tidelog.wire.headers import (
    body_framer,
    encode_response,
    read_request_header,
    reply_writer,
    request_reader,
)

if TYPE_CHECKING:
    import asyncio

    from tidelog.handlers.handler import Handler, Services
    from tidelog.net.connection import Connection
    from tidelog.net.outgoing import Outcome, Reply
    from tidelog.wire.declare import Message
    from tidelog.wire.headers import RequestHeader

logger = logging.getLogger(__name__)

_SILENCES = {NO_REPLY: net.NO_REPLY, CLOSE: net.CLOSE}
_OUR_FAULT = "the broker failed; its log says why"

_new_tuple = tuple.__new__


_LARGE_FRAME_BYTES = 1 << 16
"""Below this nothing can become large, and the setting need not be looked up."""


_FOR_STRANGERS = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""Answered to everybody at any time: by these a broker finds out, and shows, who it is."""


class _Route:
    """One API at one version: what can be known before a request comes."""

    __slots__ = ("frame", "handle", "handler", "read", "response", "write")

    def __init__(self, handler: Handler[Any, Any], version: int) -> None:
        self.handler = handler
        self.handle = handler.handle
        self.response = handler.response
        self.read = request_reader(handler.request, version)
        self.write = reply_writer(handler.response, version)
        self.frame = body_framer(handler.response, version)

    def encode(self, reply: Message, correlation_id: int) -> Outgoing:
        # As `Outgoing(...)`, but twice as fast. What handlers splice are file slices, which are regions.
        return _new_tuple(Outgoing, self.write(reply, correlation_id))


class Router:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes: dict[tuple[Any, ...], _Route] = {}
        """By API and version, filled as they are asked for."""
        self._told = False
        """Once the controller has spoken, this need not be asked again."""

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        try:
            header = read_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        route = self._routes.get(header[:2])
        if route is None:
            handler = self._services.served.get(header.api)
            if handler is None:
                raise CloseConnection(f"{api_name(header.api)} is not served")
            if not handler.versions[0] <= header.version <= handler.versions[1]:
                return self._wrong_version(handler, header)
            route = self._routes[header[:2]] = _Route(handler, header.version)
        if len(frame) > _LARGE_FRAME_BYTES and header.api != ApiKey.PRODUCE:
            self._check_size(header, len(frame))
        try:
            request = route.read(frame, header.body)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        session = connection.service_state
        if session is None:
            session = connection.service_state = Session()
        ctx = Context(
            self._services, header.version, header.client_id, connection.listener_name, connection.peer.host, session
        )
        if not self._told and self._must_wait(header, session):
            return self._when_told(route, ctx, request, header)
        try:
            answer: Any = route.handle(ctx, request)
        except BrokerError as error:
            answer = _refusal(route.handler, request, error.code, error.message)
        except Exception:
            logger.exception("%s v%d failed", api_name(header.api), header.version)
            answer = _refusal(route.handler, request, ErrorCode.UNKNOWN_SERVER_ERROR, _OUR_FAULT)
        kind = type(answer)
        if kind is route.response:
            return route.encode(answer, header.correlation_id)
        if kind is Waiting or kind is Silence:
            return self._later(answer, route, header)
        if kind is EncodedReply:
            return _new_tuple(Outgoing, (route.frame(answer.body, header.correlation_id), ()))
        return self._finish(answer, route, request, header)

    def _must_wait(self, header: RequestHeader, session: Session) -> bool:
        """Whether a client asks a broker that does not know its cluster yet."""
        self._told = self._services.told.is_set()
        return not (self._told or session.peer_broker is not None or header.api in _FOR_STRANGERS)

    async def _when_told(self, route: _Route, ctx: Context, request: Message, header: RequestHeader) -> Reply | Parked:
        await self._services.told.wait()

        async def answer() -> Any:
            answered: Any = route.handle(ctx, request)
            return await answered if isinstance(answered, Coroutine) else answered

        return await self._finish(answer(), route, request, header)

    async def answer(self, request: Message, peer_broker: int) -> Message:
        """Has a request of a broker answered that came by no connection: this broker's own, as its controller."""
        handler = self._services.served[request.API]
        session = Session()
        session.peer_broker = peer_broker
        ctx = Context(self._services, handler.versions[1], None, self._services.inter_broker_listener, "", session)
        try:
            answer: Any = handler.handle(ctx, request)
            if isinstance(answer, Coroutine):
                answer = await answer
        except BrokerError as error:
            answer = _refusal(handler, request, error.code, error.message)
        if isinstance(answer, Waiting):
            reply: asyncio.Future[Message] = self._services.loop.create_future()
            answer.then(reply.set_result)
            answer = await reply
        message: Message = answer
        return message

    async def _finish(
        self, coroutine: Coroutine[Any, Any, Any], route: _Route, request: Message, header: RequestHeader
    ) -> Reply | Parked:
        try:
            answer = await coroutine
        except BrokerError as error:
            answer = _refusal(route.handler, request, error.code, error.message)
        except Exception:
            logger.exception("%s v%d failed", api_name(header.api), header.version)
            answer = _refusal(route.handler, request, ErrorCode.UNKNOWN_SERVER_ERROR, _OUR_FAULT)
        if isinstance(answer, route.response):
            return route.encode(answer, header.correlation_id)
        if isinstance(answer, EncodedReply):
            return _new_tuple(Outgoing, (route.frame(answer.body, header.correlation_id), ()))
        return self._later(answer, route, header)

    def _later(self, answer: Waiting[Any] | Silence, route: _Route, header: RequestHeader) -> Reply | Parked:
        if isinstance(answer, Silence):
            return _SILENCES[answer]
        future: asyncio.Future[Reply] = self._services.loop.create_future()
        waiting = answer

        def deliver(reply: Message) -> None:
            if not future.done():
                future.set_result(route.encode(reply, header.correlation_id))

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


def _refusal(handler: Handler[Any, Any], request: Message, code: ErrorCode, message: str) -> Message:
    """The reply that refuses a whole request. APIs that have no place for it close the connection."""
    if handler.refuse is not None:
        refused: Message = handler.refuse(request, code, message)
        return refused
    if any(field.name == "error_code" for field in handler.response.FIELDS):
        reply: Message = handler.response(error_code=code)
        return reply
    raise CloseConnection(f"{handler.request.__name__} failed: {message}")
