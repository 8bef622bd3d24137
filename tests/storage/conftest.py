"""Every test that asks for a `disk` runs twice: on a real file system and on the double that forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from storage_cases import Disk

from tidelog.storage.fs import RealFilesystem
from tidelog.testing.forgetful_fs import ForgetfulFilesystem

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return Disk(RealFilesystem(), str(tmp_path / "data"))
    return Disk(ForgetfulFilesystem(), "/data")


@pytest.fixture
def memory() -> ForgetfulFilesystem:
    return ForgetfulFilesystem()


@pytest.fixture
def forgetful(memory: ForgetfulFilesystem) -> Disk:
    return Disk(memory, "/data")
