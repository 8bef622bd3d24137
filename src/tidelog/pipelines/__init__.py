"""Data pipelines on Spark, through PySpark: a source and a sink for topics, and a runner for pipelines made of them."""
