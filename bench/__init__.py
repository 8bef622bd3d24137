"""Measures speed and memory, on this machine and against references that run on it at the same time.

Run it with `make bench`, or `python -m bench --help`. docs/benchmarks.md explains each row.
"""
