"""Moves frames between sockets and the broker: framing, listening, replying in order, and the outgoing channel.

This room knows bytes, not messages. It bounds everything a stranger can make it hold.
"""
