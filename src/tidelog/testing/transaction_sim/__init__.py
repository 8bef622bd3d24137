"""The transaction coordinator and partitions in one thread, on simulated time and network, driven by one seed.

What decides is real: the coordinator with its runtime, markers and questions, what partitions know of producers, the
offsets of groups. Around it messages get lost, come late and come again, coordinators and leaders change, producers
stop in the middle and come back twice. `docs/simulation.md` tells how to use it.
"""
