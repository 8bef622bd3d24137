"""Every example runs, and runs again on what it left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, bootstrap: str) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(example), bootstrap], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] in {"consumed 1000 records", "example.admin is gone"}
