"""Runs pipelines: frames and queries from their definition, restarts, dead letters, progress, what is kept on disk."""
