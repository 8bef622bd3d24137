"""The composition root: wires every room into a running broker, and nothing else."""
