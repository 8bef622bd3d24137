"""A schema registry as Confluent's, over HTTP: gives schemas their ids, and finds them again.

What was asked once is remembered: a schema never changes under its id.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from tidelog.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_REPLY_BYTES_MAX: Final = 16 << 20
_REMEMBERED_MAX: Final = 10_000


class RegistryError(ClientError):
    """`status` is that of HTTP, `code` the registry's own; both are 0 when it could not be reached."""

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class Reference(NamedTuple):
    """Of one schema to another: the name by which it imports it, and where that is registered."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """May be shared by everything in a process. Calls block; those that end in `_soon` are for an event loop."""

    def __init__(
        self, urls: str | Sequence[str], *, user: str = "", password: str = "", timeout_s: float = 10.0
    ) -> None:
        """Of several addresses the first that answers is used."""
        given = urls.split(",") if isinstance(urls, str) else urls
        self._urls = [url.strip().rstrip("/") for url in given if url.strip()]
        for url in self._urls:
            if urlsplit(url).scheme not in {"http", "https"}:
                raise ValueError(f"a schema registry's address begins with http:// or https://, not as {url!r}")
        if not self._urls:
            raise ValueError("no address of a schema registry given")
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": _TYPE, "Accept": _TYPE}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, Schema], int] = {}
        self._schemas: dict[int, Schema] = {}

    def register(self, subject: str, schema: Schema) -> int:
        """The schema's id; it is added to the subject unless it is there already."""
        return self._id(subject, schema, f"/subjects/{quote(subject, safe='')}/versions")

    def look_up(self, subject: str, schema: Schema) -> int:
        """The id of a schema that somebody has registered; RegistryError if nobody has."""
        return self._id(subject, schema, f"/subjects/{quote(subject, safe='')}")

    def schema(self, schema_id: int) -> Schema:
        known = self._schemas.get(schema_id)
        if known is None:
            known = _schema(self._ask("GET", f"/schemas/ids/{schema_id}"))
            self._remember(self._schemas, schema_id, known)
        return known

    def version(self, subject: str, schema: Schema) -> int:
        """Its number among those of the subject."""
        return _number(self._ask("POST", f"/subjects/{quote(subject, safe='')}", _written(schema)), "version")

    async def register_soon(self, subject: str, schema: Schema) -> int:
        return await asyncio.to_thread(self.register, subject, schema)

    async def look_up_soon(self, subject: str, schema: Schema) -> int:
        return await asyncio.to_thread(self.look_up, subject, schema)

    def _id(self, subject: str, schema: Schema, path: str) -> int:
        known = self._ids.get((subject, schema))
        if known is None:
            known = _number(self._ask("POST", path, _written(schema)), "id")
            self._remember(self._ids, (subject, schema), known)
        return known

    def _remember(self, known: dict[Any, Any], key: Any, value: Any) -> None:
        with self._lock:
            if len(known) >= _REMEMBERED_MAX:
                known.clear()
            known[key] = value

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        failures: list[str] = []
        for url in self._urls:
            request = urllib.request.Request(  # noqa: S310 - checked to be http or https
                url + path, None if body is None else json.dumps(body).encode(), self._headers, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:  # noqa: S310
                    return _decoded(url, reply.read(_REPLY_BYTES_MAX))
            except urllib.error.HTTPError as error:
                with error:
                    raise _refusal(url + path, error) from error
            except OSError as error:
                failures.append(f"{url}: {error}")
        raise RegistryError(f"no schema registry could be reached ({'; '.join(failures)})")


def _decoded(url: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise RegistryError(f"{url} answers with something other than JSON: is it a schema registry?") from error
    if not isinstance(found, dict):
        raise RegistryError(f"{url} answers with a {type(found).__name__}: is it a schema registry?")
    return found


def _number(told: dict[str, Any], field: str) -> int:
    if not isinstance(told.get(field), int):
        raise RegistryError(f"the registry's answer names no {field}")
    return int(told[field])


def _refusal(where: str, error: urllib.error.HTTPError) -> RegistryError:
    try:
        told = json.loads(error.read(_REPLY_BYTES_MAX))
        code, message = int(told["error_code"]), str(told["message"])
    except (ValueError, TypeError, KeyError):
        code, message = 0, str(error.reason)
    return RegistryError(f"{where}: {message} (HTTP {error.code})", error.code, code)


def _written(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _schema(told: dict[str, Any]) -> Schema:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in told.get("references") or ()
        )
        return Schema(str(told["schema"]), str(told.get("schemaType") or "AVRO"), references)
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(f"the registry's answer is not a schema: {error!r}") from error
