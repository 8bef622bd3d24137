"""Every example of docs/client.md runs, in the order of the page."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing import StartBroker

PAGE = Path(__file__).parent.parent.parent / "docs" / "client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITHIN_S = 60.0


def test_the_examples_run(fresh_broker: StartBroker) -> None:
    text = PAGE.read_text()
    at = fresh_broker().bootstrap
    names: dict[str, Any] = {"__name__": "example"}

    async def run_all() -> None:
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start(1))
            source = "\n" * line + found.group(1).replace("localhost:9092", at)
            code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            async with asyncio.timeout(WITHIN_S):
                outcome = eval(code, names)
                if inspect.iscoroutine(outcome):
                    await outcome

    asyncio.run(run_all())
    assert len(BLOCK.findall(text)) >= 7
