"""Rests between tasks: only Spark's workers are touched, and they once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pyspark import TaskContext

from tidelog.pipelines import worker_rest

if TYPE_CHECKING:
    import pytest


def test_outside_of_spark_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_rest, "_done_in", None)
    before = gc.get_freeze_count()
    worker_rest.shorten_rests()
    assert gc.get_freeze_count() == before


def test_in_a_task_what_is_there_is_left_out_of_later_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_rest, "_done_in", None)
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext())
    try:
        worker_rest.shorten_rests()
        frozen = gc.get_freeze_count()
        assert frozen > 0
        kept = [[number] for number in range(10_000)]
        worker_rest.shorten_rests()
        assert gc.get_freeze_count() == frozen
        assert kept
    finally:
        gc.unfreeze()
