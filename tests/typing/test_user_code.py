"""The application that mypy checks uses every call that the clients offer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidelog.client import Admin, Consumer, Producer

USER_CODE = Path(__file__).parent / "user_code.py"
BETWEEN_ROOMS = {"abort_after", "call", "give_up", "lose", "put", "put_now", "take_over"}
"""Offered to other parts of the client, not to applications."""


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_every_call_is_used(client: type) -> None:
    used = {node.attr for node in ast.walk(ast.parse(USER_CODE.read_text())) if isinstance(node, ast.Attribute)}
    offered = {name for name in dir(client) if not name.startswith("_")} - BETWEEN_ROOMS
    # `async with` starts and closes.
    assert offered - {"start", "close"} <= used
