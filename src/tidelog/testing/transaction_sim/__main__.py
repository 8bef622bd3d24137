"""`python -m tidelog.testing.transaction_sim --seeds 1000`: see `runner.py`."""

from __future__ import annotations

import sys

from tidelog.testing.transaction_sim.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
