"""Peers are built once, whole or not at all, and whoever lacks a tool is told which package has it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import peer_setup
import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peers


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peer_setup, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(peer_setup, "CACHE", tmp_path / "cache")
    directory = tmp_path / "sources" / "peer"
    directory.mkdir(parents=True)
    (directory / "program").write_text("one")
    return directory


def build_nothing(work: Path) -> Path:
    (work / "built").write_text((work / "program").read_text())
    return work


@pytest.mark.parametrize(("name", "package"), [("mvn", "maven"), ("go", "golang-go"), ("npm", "npm")])
def test_a_missing_tool_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(peer_setup.MissingToolError, match=f"{name} is not on PATH.*apt install {package}`"):
        peer_setup.tool(name)


def test_many_at_once_build_once(source: Path) -> None:
    builds = []

    def build(work: Path) -> Path:
        builds.append(work)
        return build_nothing(work)

    with ThreadPoolExecutor(max_workers=4) as pool:
        finished = set(pool.map(lambda _: peer_setup._prepared(source.name, build), range(8)))

    assert len(finished) == 1
    assert len(builds) == 1


def test_a_changed_source_is_built_anew(source: Path) -> None:
    first = peer_setup._prepared(source.name, build_nothing)
    (source / "program").write_text("two")
    second = peer_setup._prepared(source.name, build_nothing)

    assert (first / "built").read_text() == "one"
    assert (second / "built").read_text() == "two"


def test_a_failed_build_leaves_nothing_behind(source: Path) -> None:
    def fail(work: Path) -> Path:
        peer_setup._run(["sh", "-c", "echo no such library; exit 3"], work)
        return work

    with pytest.raises(peer_setup.BuildFailedError, match="failed with 3:\nno such library"):
        peer_setup._prepared(source.name, fail)

    assert [path.name for path in peer_setup.CACHE.iterdir()] == ["peer.lock"]
    assert (peer_setup._prepared(source.name, build_nothing) / "built").exists()
