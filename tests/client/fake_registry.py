"""A schema registry of a few lines, over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

if TYPE_CHECKING:
    from types import TracebackType


class FakeRegistry:
    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.seen: list[str] = []
        self.answer: tuple[int, bytes] | None = None
        """Instead of the usual one."""
        self.authorizations: set[str | None] = set()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(None)

            def do_POST(self) -> None:
                self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _reply(self, body: Any) -> None:
                registry.seen.append(f"{self.command} {self.path}")
                registry.authorizations.add(self.headers["Authorization"])
                status, data = registry.answer or registry.usual(unquote(self.path), body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                """Tests are silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def usual(self, path: str, body: Any) -> tuple[int, bytes]:
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2]) - 1
            found = self.schemas[number] if number < len(self.schemas) else None
            return _told(found, 40403, "Schema not found")
        subject = "/".join(parts[1:-1]) if parts[-1] == "versions" else "/".join(parts[1:])
        if body not in self.schemas and parts[-1] == "versions":
            self.schemas.append(body)
        if body not in self.schemas:
            return _told(None, 40403, "Schema not found")
        schema_id = self.schemas.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            if parts[-1] != "versions":
                return _told(None, 40401, f"Subject '{subject}' not found.")
            versions.append(schema_id)
        return _told({"id": schema_id, "version": versions.index(schema_id) + 1, "subject": subject}, 0, "")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _told(found: dict[str, Any] | None, code: int, message: str) -> tuple[int, bytes]:
    if found is None:
        return 404, json.dumps({"error_code": code, "message": message}).encode()
    return 200, json.dumps(found).encode()
