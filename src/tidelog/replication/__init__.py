"""Partitions as the broker leads or follows them: a log, its high watermark, and who waits for it to move."""
