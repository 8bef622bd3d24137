"""The figures of a pipeline as Prometheus reads them, and the small server that it asks."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidelog.pipelines.runner.progress import Figures

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_METRICS: Final[tuple[tuple[str, str, str, Callable[[Figures], int | float | None]], ...]] = (
    ("up", "gauge", "Whether the query runs.", lambda each: int(each.state in {"running", "idle"})),
    ("rows_total", "counter", "Rows read.", lambda each: each.rows),
    ("rows_per_second", "gauge", "Rows per second of the last batch.", lambda each: each.rows_per_s),
    ("batches_total", "counter", "Batches done.", lambda each: each.batches),
    (
        "batch_seconds",
        "gauge",
        "How long the last batch took.",
        lambda each: None if each.batch_ms is None else each.batch_ms / 1000,
    ),
    ("lag_records", "gauge", "Records that wait in the sources.", lambda each: each.lag),
    ("state_rows", "gauge", "Rows in the state of aggregations and joins.", lambda each: each.state_rows),
    ("state_bytes", "gauge", "Memory that the state takes.", lambda each: each.state_bytes),
    ("late_rows_total", "counter", "Rows left out because they came after the watermark.", lambda each: each.late_rows),
    ("restarts_total", "counter", "Restarts after a failure.", lambda each: each.restarts),
)


def exposition(pipeline: str, figures: Iterable[Figures]) -> str:
    return "".join(f"{line}\n" for line in _lines(pipeline, list(figures)))


def _lines(pipeline: str, figures: list[Figures]) -> Iterator[str]:
    for name, kind, told, value_of in _METRICS:
        full = f"tidelog_pipeline_{name}"
        yield f"# HELP {full} {told}"
        yield f"# TYPE {full} {kind}"
        for each in figures:
            value = value_of(each)
            if value is not None:
                yield f'{full}{{pipeline="{pipeline}",query="{each.query}"}} {value}'


class MetricsServer:
    """Answers GET /metrics until closed."""

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.split("?")[0] in {"/", "/metrics"}
                body = text().encode() if found else b"there is only /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Nobody wants a line for each scrape."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
