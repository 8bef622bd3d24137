"""Spark sessions with settings that suit pipelines."""
