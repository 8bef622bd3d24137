"""`python -m tidelog.testing.sim --seeds 100`: see `runner.py`."""

from __future__ import annotations

import sys

from tidelog.testing.sim.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
