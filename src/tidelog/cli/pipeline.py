"""`tidelog pipeline`: run pipelines on Spark, and see how they are."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli.options import checked_bootstrap, json_option, key_values
from tidelog.cli.output import show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tidelog.pipelines.definition.pipeline import Pipeline
    from tidelog.pipelines.runner.directory import PipelineDirectory

F = TypeVar("F", bound="Callable[..., Any]")

file_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="TIDELOG_PIPELINES_DIR",
    show_envvar=True,
    metavar="DIR",
    help="Where pipelines keep checkpoints and state. Without it, tidelog/pipelines among the user's own state.",
)
bootstrap_option = click.option(
    "--bootstrap",
    envvar="TIDELOG_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Brokers to ask first, instead of those the pipeline names.",
    callback=lambda _ctx, _parameter, value: None if value is None else checked_bootstrap(value),
)


def running_options(function: F) -> F:
    for option in reversed(
        (
            click.option("--master", metavar="MASTER", help="Spark's master, such as spark://host:7077; this machine."),
            click.option("--conf", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a property of Spark."),
            bootstrap_option,
            dir_option,
            click.option(
                "--restarts",
                type=click.IntRange(min=0),
                default=10,
                show_default=True,
                help="How often in a row a query may fail before the pipeline ends.",
            ),
            click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus."),
            click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Where to serve them."),
            click.option("--json", "as_json", is_flag=True, help="Print a JSON document for each batch."),
        )
    ):
        function = option(function)
    return function


@click.group()
def pipeline() -> None:
    """Run pipelines on Spark, and see how they are."""


@pipeline.command()
@file_argument
@running_options
def run(file: Path, **options: Any) -> None:
    """Run the pipeline in FILE until it is stopped.

    FILE is a Python module or YAML. Ctrl-C stops it when its batches are done; a second one stops it at once. At its
    next start it goes on where it was.
    """
    _run(file, once=False, **options)


@pipeline.command()
@file_argument
@running_options
def once(file: Path, **options: Any) -> None:
    """Run the pipeline in FILE over all that there is by now, and end."""
    _run(file, once=True, **options)


@pipeline.command()
@file_argument
@json_option
def validate(file: Path, as_json: bool) -> None:
    """Check the pipeline in FILE, without Spark and without a broker."""
    with told():
        found = _loaded(file)
    if as_json:
        show_json(_described(found))
        return
    show_table(["name", "kind", "made of"], _rows(found))
    for name in found.unused():
        click.echo(f"tidelog: warning: nothing needs {name}", err=True)


@pipeline.command()
@click.argument("name", required=False, metavar="[NAME|FILE]")
@dir_option
@json_option
def status(name: str | None, directory: Path | None, as_json: bool) -> None:
    """Show how far a pipeline is, or was when it ended."""
    with told():
        chosen = _known(directory) if name is None else [_named(name, directory)]
        found = [(each, each.status(), each.runner_pid()) for each in chosen]
        found = [(each, known if pid is not None else _ended(known), pid) for each, known, pid in found]
    if as_json:
        show_json([{"pipeline": each.name, "pid": pid, "file": each.file(), **known} for each, known, pid in found])
        return
    from tidelog.cli.pipeline_display import cells  # noqa: PLC0415
    from tidelog.pipelines.runner.progress import Figures  # noqa: PLC0415

    rows: list[list[str | int | None]] = []
    for each, known, pid in found:
        rows.extend([each.name, *cells(Figures(**query))] for query in known.get("queries", ()))
        if not known.get("queries"):
            rows.append([each.name, None, "running" if pid else "never ran", None, None, None, None, None, None])
    show_table(["pipeline", "query", "state", "batch", "rows", "rows/s", "lag", "batch time", "state size"], rows)
    for _, known, _pid in found:
        for query in known.get("queries", ()):
            if query.get("error"):
                click.echo(f"{query['query']}: {query['error']}")


def _ended(known: dict[str, Any]) -> dict[str, Any]:
    """Whoever was killed could not write down that it runs no more."""
    queries = [
        query if query["state"] in {"done", "failed"} else {**query, "state": "stopped"}
        for query in known.get("queries", ())
    ]
    return {**known, "queries": queries} if queries else known


@pipeline.command(name="list")
@dir_option
@json_option
def list_(directory: Path | None, as_json: bool) -> None:
    """List the pipelines that have run on this machine."""
    with told():
        found = [(each, each.runner_pid(), each.file()) for each in _known(directory)]
    if as_json:
        show_json([{"name": each.name, "pid": pid, "file": file} for each, pid, file in found])
        return
    show_table(
        ["name", "state", "pid", "file"],
        [[each.name, "running" if pid is not None else "stopped", pid, file] for each, pid, file in found],
    )


@pipeline.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dir_option
def reset(name: str, yes: bool, directory: Path | None) -> None:
    """Forget checkpoints, state and schemas of a pipeline: it begins anew, and its output repeats."""
    with told():
        found = _named(name, directory)
        with found.locked():
            elsewhere = [path for path in found.checkpoints_elsewhere() if path.exists()]
            with found.locked_elsewhere(elsewhere):
                places = ", ".join(map(str, (found.path, *elsewhere)))
                if not yes:
                    click.confirm(f"Forget all that {found.name} has in {places}?", abort=True, err=True)
                found.forget()
    click.echo(f"{found.name} begins anew at its next start")


@pipeline.command()
@file_argument
@bootstrap_option
@click.option("--limit", type=click.IntRange(min=1), help="At most so many records.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent back.")
@json_option
def replay(file: Path, bootstrap: str | None, limit: int | None, dry_run: bool, as_json: bool) -> None:
    """Send the dead letters of the pipeline in FILE back to the topics they came from.

    Each is sent back once: what was replayed before is not sent again.
    """
    from tidelog.pipelines.runner.replaying import replay as replay_all  # noqa: PLC0415 - --help must not pay for it
    from tidelog.pipelines.runner.running import RunOptions, kafka_settings  # noqa: PLC0415

    with told():
        found = _loaded(file)
        letters = replay_all(
            found.name,
            found.dead_letter_topic,
            kafka_settings(found, RunOptions(Path(), bootstrap=bootstrap)),
            limit=limit,
            dry_run=dry_run,
        )
    if as_json:
        show_json([letter._asdict() for letter in letters])
        return
    show_table(["topic", "partition", "offset", "error"], [list(letter) for letter in letters])
    click.echo(f"{len(letters)} records {'would be' if dry_run else 'were'} sent back", err=True)


def _run(
    file: Path,
    *,
    once: bool,
    master: str | None,
    assignments: tuple[str, ...],
    bootstrap: str | None,
    directory: Path | None,
    restarts: int,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
) -> None:
    conf = key_values(assignments, "--conf")
    stop, hurry = threading.Event(), threading.Event()
    with told():
        found = _loaded(file)
        from tidelog.cli.pipeline_display import choose_display  # noqa: PLC0415 - --help must not pay for it
        from tidelog.pipelines.runner.running import RunOptions, run_pipeline  # noqa: PLC0415

        options = RunOptions(
            _root(directory),
            once=once,
            master=master,
            conf=conf,
            bootstrap=bootstrap,
            restarts_max=restarts,
            metrics=None if metrics_port is None else (metrics_host, metrics_port),
        )
        with choose_display(found.name, as_json=as_json) as display, _signals(stop, hurry) as take:
            run_pipeline(found, options, display, stop, hurry, ready=take)


@contextlib.contextmanager
def _signals(stop: threading.Event, hurry: threading.Event) -> Iterator[Callable[[], None]]:
    """The first signal asks the pipeline to end, the second to do so at once. Spark takes them when it starts, so that
    they are taken again when it has. A start cannot be asked to end: the second signal interrupts it."""
    started = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            hurry.set()
            if not started.is_set():
                raise KeyboardInterrupt
        stop.set()

    def take() -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, handle)

    def take_again() -> None:
        started.set()
        take()

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    take()
    try:
        yield take_again
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What is wrong with a pipeline, or keeps it from running, becomes what the user is told."""
    from tidelog.pipelines.definition.errors import PipelineError  # noqa: PLC0415
    from tidelog.pipelines.session.errors import SessionError  # noqa: PLC0415

    try:
        yield
    except (PipelineError, SessionError) as error:
        raise click.ClickException(str(error)) from error


def _loaded(file: Path) -> Pipeline:
    from tidelog.pipelines.definition.errors import PipelineError  # noqa: PLC0415
    from tidelog.pipelines.definition.loading import load  # noqa: PLC0415

    try:
        return load(file)
    except PipelineError as error:
        raise click.UsageError(str(error)) from error


def _root(directory: Path | None) -> Path:
    from tidelog.pipelines.runner.directory import default_root  # noqa: PLC0415

    return directory or default_root(os.environ)


def _known(directory: Path | None) -> list[PipelineDirectory]:
    from tidelog.pipelines.runner.directory import known_pipelines  # noqa: PLC0415

    return known_pipelines(_root(directory))


def _named(name: str, directory: Path | None) -> PipelineDirectory:
    """By its name, or by its file, which tells its name."""
    from tidelog.pipelines.definition.errors import PipelineError, nearest  # noqa: PLC0415
    from tidelog.pipelines.runner.directory import PipelineDirectory  # noqa: PLC0415

    if name.endswith((".py", ".yaml", ".yml")):
        name = _loaded(Path(name)).name
    found = PipelineDirectory(_root(directory), name)
    if not found.exists():
        known = [each.name for each in _known(directory)]
        raise PipelineError(f"no pipeline {name!r} has run here: {nearest(name, known)}")
    return found


def _rows(found: Pipeline) -> list[list[str | int | None]]:
    return [[each["name"], each["kind"], ", ".join(each["inputs"]) or None] for each in _described(found)["parts"]]


def _described(found: Pipeline) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for name, source in found.sources.items():
        kind = type(source.reads).__name__.removesuffix("Read").lower()
        parts.append({"name": name, "kind": f"source: {kind}", "inputs": []})
    queried = {query.view for query in found.queries}
    for name, view in found.views.items():
        if name not in queried or not name.startswith("sink "):
            parts.append({"name": name, "kind": "view", "inputs": list(view.inputs)})
    for query in found.queries:
        inputs = found.views[query.view].inputs if query.view.startswith("sink ") else (query.view,)
        parts.append({"name": query.name, "kind": f"sink: {query.sink.kind}", "inputs": list(inputs)})
    return {
        "name": found.name,
        "dead_letters": found.dead_letter_topic if any(found.decoded()) else None,
        "parts": parts,
    }
