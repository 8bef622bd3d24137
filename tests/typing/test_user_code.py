"""The application that mypy checks uses every call that the clients offer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidelog.client import Admin, Consumer, Producer

USER_CODE = Path(__file__).parent / "user_code.py"


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_every_call_is_used(client: type) -> None:
    used = {node.attr for node in ast.walk(ast.parse(USER_CODE.read_text())) if isinstance(node, ast.Attribute)}
    offered = {name for name in dir(client) if not name.startswith("_")}
    # `async with` starts and closes.
    assert offered - {"start", "close"} <= used
