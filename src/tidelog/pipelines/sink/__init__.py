"""Rows of Spark into topics: streams and batches, exactly once or at least once."""
