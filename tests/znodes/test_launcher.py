"""ZooKeeper servers of our own: started, seen again, killed, brought back, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.testing.eventually import eventually
from tidelog.znodes.launcher import LauncherError, ZooKeeperServers, find_jars, find_java

IMPORTS = "import os, pathlib, signal, sys; from tidelog.znodes.launcher import ZooKeeperServers, find_jars\n"


def test_a_server_keeps_its_port_and_is_seen_again_by_whoever_opens_its_directory(tmp_path: Path) -> None:
    with ZooKeeperServers(tmp_path / "zookeeper") as servers:
        connect_string = servers.connect_string
        assert servers.serves(1)
        seen = ZooKeeperServers(tmp_path / "zookeeper")
        assert (seen.pids, seen.connect_string) == (servers.pids, connect_string)
        before = servers.pids[1]
        servers.kill(1)
        assert servers.pids == seen.pids == {}
        assert not servers.serves(1)
        servers.restart(1)
        assert servers.serves(1)
        assert servers.pids[1] != before
        # One that is paused ends too, by order of somebody who did not start it.
        os.kill(servers.pids[1], signal.SIGSTOP)
        seen.stop()
        assert servers.pids == {}
    assert servers.connect_string == connect_string
    assert "ZooKeeper" in servers.log_tail(1, 1000)


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = "ZooKeeperServers(pathlib.Path(sys.argv[1])).start(); os.kill(os.getpid(), signal.SIGKILL)"
    starter = subprocess.Popen([sys.executable, "-c", IMPORTS + code, str(tmp_path)])
    assert starter.wait() == -signal.SIGKILL
    servers = ZooKeeperServers(tmp_path)
    eventually(lambda: not servers.pids, "the server to end")


def test_servers_that_outlive_the_process_that_started_them(tmp_path: Path) -> None:
    code = "ZooKeeperServers(pathlib.Path(sys.argv[1]), outlive=True).start()"
    subprocess.run([sys.executable, "-c", IMPORTS + code, str(tmp_path)], check=True)
    servers = ZooKeeperServers(tmp_path)
    try:
        assert servers.serves(1)
    finally:
        servers.stop()
    assert servers.pids == {}


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    servers = ZooKeeperServers(tmp_path, heap_mb=0)
    with pytest.raises(LauncherError, match=r"has ended. Its log:(.|\n)*heap"):
        servers.start()
    assert servers.pids == {}


def test_java_is_looked_for_in_java_home_and_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LauncherError, match="JAVA_HOME"):
        find_java()
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(mode=0o755)
    assert find_java() == str(java)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java() == str(java)
    java.unlink()
    with pytest.raises(LauncherError, match="install it"):
        find_java()


def test_pyspark_is_found_but_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = IMPORTS + "print(find_jars()); assert 'pyspark' not in sys.modules"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == find_jars()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # another test may have imported it
    with pytest.raises(LauncherError, match=r"pip install 'tidelog\[spark\]'"):
        find_jars()


def test_what_is_no_ensemble(tmp_path: Path) -> None:
    for count in (0, 2, 4):
        with pytest.raises(LauncherError, match="odd number"):
            ZooKeeperServers(tmp_path, count)
    with pytest.raises(LauncherError, match="not been started"):
        ZooKeeperServers(tmp_path, 3).connect_string  # noqa: B018 - asking is the test
    (tmp_path / "ports.json").write_text('[{"client": 1, "quorum": 2, "election": 3}]')
    assert ZooKeeperServers(tmp_path).connect_string == "127.0.0.1:1"
    with pytest.raises(LauncherError, match="has 1 ZooKeeper servers, not 3"):
        ZooKeeperServers(tmp_path, 3)
    (tmp_path / "ports.json").write_text("{")
    with pytest.raises(LauncherError, match="use another directory"):
        ZooKeeperServers(tmp_path)
