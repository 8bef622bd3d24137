"""The log on disk: partitions, segments, indexes, producer state, recovery. Only `fs.py` opens files."""
