"""Pipelines as they are written down, in Python or YAML. Pure: nothing here needs Spark or a broker."""
