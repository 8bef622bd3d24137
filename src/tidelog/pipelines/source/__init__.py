"""Topics as rows of Spark: streams and batches."""
