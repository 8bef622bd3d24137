"""Makes the double of a cluster importable by the tests of this room."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
