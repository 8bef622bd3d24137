"""Brokers for every test that needs one: a shared one, and as many fresh ones as it likes."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from storage_cases import Disk

from tidelog.storage.fs import RealFilesystem
from tidelog.testing import BrokerProcess, RawClient
from tidelog.testing.forgetful_fs import ForgetfulFilesystem
from tidelog.znodes.launcher import ZooKeeperServers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidelog.testing import StartBroker

# Timing never decides a test; and a change is judged by the same examples each time it is submitted.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")

ROOMS_BY_MODULE = {
    "assign",
    "config",
    "controller",
    "coordinators",
    "handlers",
    "net",
    "records",
    "replication",
    "security",
    "storage",
    "wire",
    "znodes",
}
"""Thousands of tests, each over in a moment; and some that share servers of ZooKeeper."""

GROUPS_BY_MODULE = {
    "test_pipeline_cli": "spark",
    "test_pipeline_examples": "spark",
    "test_chaos": "spark",
    "test_docs_run": "spark",
    "test_session_spark": "another spark",
    "test_source_spark": "another spark",
    "test_sink_spark": "another spark",
    "test_runner_spark": "another spark",
    "test_demo_run": "another spark",
    "test_demo_on_cluster": "another spark",
    "test_pipeline_docs": "another spark",
    "test_bench_pipelines": "another spark",
    "test_spark_connector": "spark",
    "test_spark_equality": "spark",
    "test_spark_pipelines": "another spark",
    "test_declarations": "declarations",
}
"""Spark takes a core and more: two at a time, which begin before everything else. Tests in one process share a Java."""

FAST_SETTINGS = {
    # Kafka waits before it looks after its logs and before the first group rebalance; tests need not.
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker: leave it running, and use topics of your own (`topic`)."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), FAST_SETTINGS) as process:
        yield process


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[StartBroker]:
    started: list[BrokerProcess] = []

    def start(settings: Mapping[str, str] = {}, *, data_dir: Path | None = None) -> BrokerProcess:
        directory = data_dir or tmp_path / f"broker-{len(started)}"
        process = BrokerProcess(directory, {**FAST_SETTINGS, **settings})
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.close()


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    """A connection to the shared broker that sends exactly what it is told."""
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, BrokerProcess):
                report.sections.append((f"broker log of {value.data_dir.name}", value.log_tail()))
    return report


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Short tests go to a worker by the module: handed over one by one, thousands of them take longer than that."""
    for item in items:
        group = GROUPS_BY_MODULE.get(item.path.stem)
        if group is None and item.path.parent.name in ROOMS_BY_MODULE:
            group = item.path.stem
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.path.stem not in GROUPS_BY_MODULE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, help="how often the broker is killed under load (default 3)")


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Every test that asks for it runs twice: on a real file system and on the double that forgets."""
    if request.param == "real":
        return Disk(RealFilesystem(), str(tmp_path / "data"))
    return Disk(ForgetfulFilesystem(), "/data")


@pytest.fixture
def memory() -> ForgetfulFilesystem:
    return ForgetfulFilesystem()


@pytest.fixture
def forgetful(memory: ForgetfulFilesystem) -> Disk:
    return Disk(memory, "/data")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """A real ZooKeeper server for all tests of a worker. Leave it running."""
    with ZooKeeperServers(tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


@pytest.fixture
def own_root(zookeeper: ZooKeeperServers) -> str:
    """A connect string with a root that no other test uses."""
    return f"{zookeeper.connect_string}/{uuid.uuid4().hex}/root"
