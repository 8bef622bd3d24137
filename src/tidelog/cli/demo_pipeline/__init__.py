"""The pipeline of the demo, in a directory of its own, as a user's would be."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "shop.py"
