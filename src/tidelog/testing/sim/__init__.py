"""A whole cluster in one thread, on simulated time, network, disks and znodes, driven by one seed.

The rooms under test are the real ones. What is simulated is the world around them, so that a fault that takes a week
to meet in production is met in a second, and met again by whoever runs the same seed. `docs/simulation.md` tells how
to use it.
"""
