"""Runs a whole pipeline, from its definition to its end."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.client.config import ConsumerConfig, ProducerConfig
from tidelog.client.errors import ClientError, TimedOut, worth_retrying
from tidelog.clock import SystemClock
from tidelog.errors import BrokerError
from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.definition.sinks import write
from tidelog.pipelines.runner.beginnings import Beginnings
from tidelog.pipelines.runner.checkpoint_places import address, local_path
from tidelog.pipelines.runner.clients import options_for
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.runner.failures import Backoff
from tidelog.pipelines.runner.outputs import Output
from tidelog.pipelines.runner.supervising import Supervisor, Watcher
from tidelog.pipelines.runner.topics import make_topics, wanted_topics
from tidelog.pipelines.runner.writing import Run, ShowRows
from tidelog.pipelines.session.session import output_file, require_spark
from tidelog.pipelines.session.settings import LOCAL_MASTER, is_local

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.clock import Clock
    from tidelog.pipelines.definition.pipeline import Pipeline, Query
    from tidelog.pipelines.definition.sources import Source
    from tidelog.pipelines.runner.progress import Figures
    from tidelog.pipelines.runner.reading import SourceReader

_DEFAULT_BOOTSTRAP = "localhost:9092"
_SAVE_EVERY_S = 1.0
_DEAD_LETTERS_EVERY = "2 seconds"
"""They can wait for a moment, and the cores have better things to do."""


class Display(Watcher, ShowRows, Protocol):
    """Shows a pipeline as it runs."""

    def stage(self, text: str) -> None:
        """What is being done before there are batches."""

    def warn(self, text: str) -> None:
        """Something that the user has to know, and that goes on all the same."""


@dataclass(frozen=True)
class RunOptions:
    root: Path
    once: bool = False
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    bootstrap: str | None = None
    restarts_max: int = 10
    metrics: tuple[str, int] | None = None
    """Where Prometheus asks."""


def run_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    display: Display,
    stop: threading.Event,
    hurry: threading.Event,
    ready: Callable[[], None] = lambda: None,
) -> list[Figures]:
    """Until `stop` is set, or all is read with `once`. `ready` is called when the session is there: Spark then has
    taken the signals, and they can be taken back."""
    directory = PipelineDirectory(options.root, pipeline.name)
    kafka = kafka_settings(pipeline, options)
    require_spark()
    elsewhere = _checkpoints_elsewhere(pipeline, options, directory)
    near = [path for path in map(local_path, elsewhere) if path is not None]
    with directory.locked(), directory.locked_elsewhere(near):
        directory.claim(pipeline.file, elsewhere)
        beginnings = Beginnings(directory)
        watcher = _Watching(pipeline, directory, beginnings, display, SystemClock())
        backoff = Backoff(tries_max=options.restarts_max)
        supervisor = Supervisor(watcher, SystemClock(), stop, hurry, backoff, once=options.once)
        with _metrics(supervisor, pipeline, options) as served:
            make_topics(wanted_topics(pipeline), kafka)
            if not is_local(_master(pipeline, options)) and pipeline.settings.checkpoint is None:
                display.warn(
                    "checkpoints are on this machine: set `checkpoint` to a place that all of the cluster reaches"
                )
            display.stage("starting Spark")
            with _told_of_java(directory.log_file), _stopped(_session(pipeline, options, directory)) as spark:
                ready()
                if stop.is_set():
                    return []
                display.stage("starting the queries")
                _add_queries(supervisor, spark, pipeline, options, directory, beginnings, display, kafka)
                if served is not None:
                    display.stage(f"metrics at {served}")
                supervisor.run()
                return supervisor.figures()


@contextlib.contextmanager
def _told_of_java(log_file: Path) -> Iterator[None]:
    """Only py4j's errors, and those of its connections, say that Java is lost: others have reasons of their own."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415 - Spark's

    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads any more what is printed; py4j has an error of its own for what it cannot send
    except Py4JJavaError as error:
        told = " ".join(str(error).splitlines()[:2])
        raise PipelineError(f"Spark has failed ({told}): see {log_file}") from error
    except (ConnectionError, EOFError, Py4JError) as error:
        raise PipelineError(f"Spark's Java process has ended ({error}): see {log_file}") from error
    except OSError as error:  # a full disk, too many open files
        where = "" if error.filename is None else f"{error.filename}: "
        raise PipelineError(f"{where}{error.strerror or error}") from error


@contextlib.contextmanager
def _stopped(spark: SparkSession) -> Iterator[SparkSession]:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's

    try:
        yield spark
    finally:
        with contextlib.suppress(OSError, Py4JError):
            spark.stop()


def kafka_settings(pipeline: Pipeline, options: RunOptions) -> dict[str, str]:
    """Settings of all clients of the pipeline, by Kafka's names."""
    bootstrap = options.bootstrap or pipeline.settings.bootstrap or _DEFAULT_BOOTSTRAP
    return {"bootstrap.servers": bootstrap, **{key: str(value) for key, value in pipeline.settings.kafka.items()}}


def _checkpoints_elsewhere(pipeline: Pipeline, options: RunOptions, directory: PipelineDirectory) -> list[str]:
    """Those of all queries: beside them there may be anything, such as the files that a sink writes."""
    place = pipeline.settings.checkpoint
    if place is None:
        return []
    letters = [pipeline.dead_letter_query(source) for source, _ in pipeline.decoded()]
    queries = [*(query.name for query in pipeline.queries), *letters]
    conf = {**pipeline.settings.conf, **options.conf}
    return [address(directory.checkpoint(query, place), conf, os.environ, Path.cwd()) for query in queries]


def _master(pipeline: Pipeline, options: RunOptions) -> str:
    conf = {**pipeline.settings.conf, **options.conf}
    return options.master or str(conf.get("spark.master", LOCAL_MASTER))


def _session(pipeline: Pipeline, options: RunOptions, directory: PipelineDirectory) -> SparkSession:
    from pyspark import cloudpickle  # noqa: PLC0415 - needs what only now is known to be there

    from tidelog.pipelines.session import build_session  # noqa: PLC0415

    logging.getLogger().addFilter(is_not_of_py4j)  # py4j has no logger of its own for this
    beside = str(pipeline.file.absolute().parent)
    # Workers on this machine find the modules beside the pipeline; those elsewhere get them with the functions.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [beside, os.environ.get("PYTHONPATH")]))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and str(Path(file).parent) == beside and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return build_session(
        options.master,
        f"tidelog {pipeline.name}",
        {**pipeline.settings.conf, **options.conf},
        short_run=options.once,
        log_file=directory.log_file,
        apart=True,
    )


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It tells with a traceback that Java is gone, which is told here in one line."""
    return Path(record.pathname).parent.name != "py4j"


def _add_queries(
    supervisor: Supervisor,
    spark: SparkSession,
    pipeline: Pipeline,
    options: RunOptions,
    directory: PipelineDirectory,
    beginnings: Beginnings,
    display: Display,
    kafka: Mapping[str, str],
) -> None:
    from tidelog.pipelines.runner.dead_letters import dead_letters  # noqa: PLC0415 - they load PySpark
    from tidelog.pipelines.runner.frames import build_frame  # noqa: PLC0415
    from tidelog.pipelines.runner.reading import SourceReader  # noqa: PLC0415
    from tidelog.pipelines.runner.schemas import Schemas  # noqa: PLC0415
    from tidelog.pipelines.runner.writing import start  # noqa: PLC0415

    beside = pipeline.file.absolute().parent
    reading = options_for(ConsumerConfig, kafka)
    schemas = Schemas(spark, directory, beside)
    reader = SourceReader(spark, schemas, beginnings, reading, pipeline.dead_letter_topic)
    writing = options_for(ProducerConfig, kafka)

    def run(name: str, trigger: str | None = pipeline.settings.trigger) -> Run:
        checkpoint = directory.checkpoint(name, pipeline.settings.checkpoint)
        return Run(name, checkpoint, trigger, options.once, writing, beside, display)

    def beginning(query: Query) -> Callable[[], StreamingQuery | None]:
        group = pipeline.group(query.name)
        return lambda: start(build_frame(spark, pipeline, query.view, reader, group), query.sink, run(query.name))

    def beginning_letters(name: str, source: Source) -> Callable[[], StreamingQuery | None]:
        query = pipeline.dead_letter_query(name)
        group = pipeline.group(query)
        sink = write.topic(pipeline.dead_letter_topic, value="columns")
        how = run(query, pipeline.settings.trigger or _DEAD_LETTERS_EVERY)
        return lambda: start(dead_letters(pipeline.name, name, source, reader, group), sink, how)

    _settle(pipeline, reader, display, supervisor)
    for query in pipeline.queries:
        supervisor.add(query.name, beginning(query))
    for name, source in pipeline.decoded():
        supervisor.add(pipeline.dead_letter_query(name), beginning_letters(name, source))


def _settle(pipeline: Pipeline, reader: SourceReader, display: Display, supervisor: Supervisor) -> None:
    """Where queries begin, before the first does; for as long as queries themselves would be tried."""
    for name, source in pipeline.sources.items():
        # Dead letters first: it does no harm if they begin a moment before a sink.
        groups = [pipeline.group(query) for query in reversed(pipeline.readers(name))]
        for failures in itertools.count(1):
            if supervisor.stop.is_set():
                return
            try:
                reader.settle(name, source, groups)
                break
            except (ClientError, BrokerError) as error:
                wait_s = supervisor.backoff.wait_s(failures)
                if wait_s is None or not (worth_retrying(error) or isinstance(error, TimedOut)):
                    raise
                display.warn(f"source {name}: {error}; it is asked again in {wait_s:g} s")
                supervisor.stop.wait(wait_s)


@contextlib.contextmanager
def _metrics(supervisor: Supervisor, pipeline: Pipeline, options: RunOptions) -> Iterator[str | None]:
    """Where they are served, if they are. Before Spark starts: whoever names a port that is taken hears it at once."""
    if options.metrics is None:
        yield None
        return
    from tidelog.pipelines.runner.prometheus import MetricsServer, exposition  # noqa: PLC0415 - few want it

    host, port = options.metrics
    try:
        server = MetricsServer(host, port, lambda: exposition(pipeline.name, supervisor.figures()))
    except OSError as error:
        raise PipelineError(
            f"metrics cannot be served at {host}:{port} ({error.strerror}): choose another place with --metrics-port "
            "and --metrics-host"
        ) from error
    try:
        yield f"http://{host}:{server.port}/metrics"
    finally:
        server.close()


class _Watching:
    """Passes everything on, and keeps the figures on disk for whoever asks how the pipeline is."""

    def __init__(
        self,
        pipeline: Pipeline,
        directory: PipelineDirectory,
        beginnings: Beginnings,
        display: Display,
        clock: Clock,
    ) -> None:
        self._pipeline = pipeline
        self._directory = directory
        self._beginnings = beginnings
        self._display = display
        self._clock = clock
        self._saved_at_s = 0.0
        self._output = Output(output_file(directory.log_file))
        self._started_ms = clock.now_ms()

    def batch(self, figures: Figures, report: Mapping[str, Any]) -> None:
        self._beginnings.begun(self._pipeline.group(figures.query))
        self._display.batch(figures, report)

    def failed(self, figures: Figures, wait_s: float) -> None:
        self._display.failed(figures, wait_s)

    def look(self, figures: Sequence[Figures]) -> None:
        self._display.look(figures)
        for warning in self._output.warnings():
            self._display.warn(warning)
        ended = all(each.state in {"done", "stopped", "failed"} for each in figures)
        if ended or self._clock.monotonic() - self._saved_at_s >= _SAVE_EVERY_S:
            self._saved_at_s = self._clock.monotonic()
            self._directory.save_status(
                {
                    "started_ms": self._started_ms,
                    "updated_ms": self._clock.now_ms(),
                    "queries": [each.as_json() for each in figures],
                }
            )
