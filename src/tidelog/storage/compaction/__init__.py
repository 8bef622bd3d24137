"""The log cleaner: of each key only the newest record is kept, under its own offset.

Choosing is pure (`choosing.py`), and so is what becomes of a batch (`selecting.py`, `rewriting.py`). Closed segments
are read and rewritten (`cleaning.py`) in a process of its own (`worker.py`); the event loop gives leave (`ticket.py`)
and puts what comes out in place (`swap.py`).
"""
