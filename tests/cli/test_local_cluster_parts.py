"""The parts of a cluster on this machine: who is the same process, which ports are free, what is written down."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.properties import parse_properties
from tidelog.local_cluster import broker_log, state
from tidelog.local_cluster.brokers import in_order_of_leaving
from tidelog.local_cluster.directory import ClusterDirectory, default_directory
from tidelog.local_cluster.errors import LocalClusterError
from tidelog.local_cluster.ports import HOST, is_free, next_ports, scattered_ports, share_of
from tidelog.local_cluster.process import ProcessMark, spawn
from tidelog.local_cluster.properties import broker_properties, check_settings, render
from tidelog.local_cluster.state import KnownBroker, KnownCluster
from tidelog.testing import eventually

CLUSTER = KnownCluster(
    "",
    1,
    {"num.partitions": "6"},
    (
        KnownBroker(1, 19092, "a", ProcessMark(4711, "boot/12345")),
        KnownBroker(2, 19093, None, None, "killed"),
    ),
)


def test_a_process_is_known_again_paused_and_ended(tmp_path: Path) -> None:
    clock = SystemClock()
    log = tmp_path / "log"
    code = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read(), flush=True); os.read(0, 1)"
    mark = spawn([sys.executable, "-c", code + "; import signal; signal.pause()"], log, os.environ)
    assert mark.alive
    eventually(lambda: broker_log.tail(log, 1) == "True ", "the process to say that it leads a session")
    mark.send(signal.SIGSTOP)
    eventually(lambda: mark.paused, "the process to be paused")
    assert mark.alive
    # The same number, started at another time, is another process: it is neither alive nor killed.
    stranger = replace_start(mark)
    assert not stranger.alive
    stranger.send(signal.SIGKILL)
    assert stranger.wait_for_end(10, clock)
    assert mark.alive
    assert not mark.wait_for_end(0, clock)
    mark.send(signal.SIGKILL)
    assert mark.wait_for_end(10, clock)
    mark.send(signal.SIGKILL)


def replace_start(mark: ProcessMark) -> ProcessMark:
    return mark._replace(started=f"{mark.started}0")


def test_ports_that_are_taken_are_passed_over() -> None:
    (start,) = scattered_ports(1)
    with socket.socket() as taken:
        taken.bind((HOST, start))
        taken.listen()
        assert not is_free(start)
        ports = next_ports(2, start=start, beside={start + 1})
        assert start not in ports
        assert start + 1 not in ports
        assert all(is_free(port) for port in ports)
    with pytest.raises(LocalClusterError, match="no 2 free ports"):
        next_ports(2, start=31_999)
    assert len(set(scattered_ports(5))) == 5


def test_tests_that_run_side_by_side_choose_among_ports_of_their_own() -> None:
    shares = [set(share_of(f"gw{worker}")) for worker in range(16)]
    assert set().union(*shares) == set(share_of(None)) == set(share_of("master"))
    assert sum(map(len, shares)) == len(share_of(None))
    assert min(map(len, shares)) > 1000


def test_what_is_known_survives(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    assert state.load(path) is None
    state.save(path, CLUSTER)
    assert state.load(path) == CLUSTER
    assert CLUSTER.bootstrap == f"{HOST}:19092,{HOST}:19093"
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"format": 99}', '{"format": 1, "zookeeper": ""}'])
def test_a_damaged_state_file_is_named(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(damaged)
    with pytest.raises(LocalClusterError, match=r"cluster\.json cannot be read .*use another directory"):
        state.load(path)


def test_properties_are_those_that_a_broker_reads(tmp_path: Path) -> None:
    settings = {"num.partitions": "6", "min.insync.replicas": "1", "tidelog.zookeeper.digest": " user:\\pass\tword"}
    properties = broker_properties(CLUSTER.brokers[0], 3, tmp_path / "with space", "127.0.0.1:2181/x", settings)
    assert parse_properties(render(properties)) == properties
    config = BrokerConfig.parse(properties)
    assert (config.broker_id, config.broker_rack, config.default_replication_factor) == (1, "a", 3)
    assert (config.num_partitions, config.min_insync_replicas) == (6, 1)
    assert config.log_dirs == (str(tmp_path / "with space"),)
    alone = BrokerConfig.parse(broker_properties(CLUSTER.brokers[1], 1, tmp_path, "127.0.0.1:2181", {}))
    assert (alone.default_replication_factor, alone.min_insync_replicas, alone.broker_rack) == (1, 1, None)


def test_what_differs_from_broker_to_broker_cannot_be_set_for_all() -> None:
    check_settings({"num.partitions": "6"})
    with pytest.raises(ConfigError, match=r"broker\.id(.|\n)*zookeeper\.connect.*use --zookeeper"):
        check_settings({"broker.id": "1", "zookeeper.connect": "x"})


def test_one_command_at_a_time(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "cluster")
    with pytest.raises(LocalClusterError, match="name another directory"), directory.locked():
        pass
    directory.make()
    with directory.locked(), pytest.raises(LocalClusterError, match="another command"), directory.locked():
        pass
    with directory.locked():
        pass
    (tmp_path / "file").touch()
    with pytest.raises(LocalClusterError, match="cannot be made"):
        ClusterDirectory(tmp_path / "file" / "cluster").make()


def test_the_users_own_state_is_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory({}) == tmp_path / ".local/state/tidelog/cluster"
    assert default_directory({"XDG_STATE_HOME": "relative"}) == tmp_path / ".local/state/tidelog/cluster"
    assert default_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/tidelog/cluster")


def test_the_controller_leaves_last() -> None:
    brokers = [KnownBroker(number, number) for number in (1, 2, 3)]
    assert [broker.id for broker in in_order_of_leaving(brokers, 2)] == [1, 3, 2]
    assert [broker.id for broker in in_order_of_leaving(brokers, None)] == [1, 2, 3]


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    assert (broker_log.tail(log, 5), broker_log.says_ready(log, 0)) == ("", False)
    log.write_text("tidelog 1 ready: broker 1 listens on 127.0.0.1:1\nstopped\n")
    start = broker_log.size(log)
    with log.open("a") as file:
        file.write("one\ntwo\nthree\n")
    assert broker_log.says_ready(log, 0)
    assert not broker_log.says_ready(log, start)
    assert broker_log.tail(log, 2) == "two\nthree"
    assert broker_log.tail(log, 9, start) == "one\ntwo\nthree"


def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(LocalClusterError, match="no broker 3: there are 1, 2"):
        CLUSTER.broker(3)
    changed = CLUSTER.with_broker(replace(CLUSTER.brokers[1], ended="stopped"))
    assert [broker.ended for broker in changed.brokers] == ["never started", "stopped"]
    assert not CLUSTER.running
