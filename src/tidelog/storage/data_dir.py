"""One of the directories in `log.dirs`, as far as the partitions in it have to know."""

from __future__ import annotations


class DataDir:
    """Counts the names that come and go in it, so that one sync of the directory serves all partitions made before."""

    __slots__ = ("names_changed", "names_synced", "partitions", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.partitions = 0
        self.names_changed = 0
        self.names_synced = 0

    def name_changed(self) -> int:
        self.names_changed += 1
        return self.names_changed

    def settle(self, mark: int) -> None:
        """Every name up to the `mark`-th change is durable."""
        assert mark <= self.names_changed
        self.names_synced = max(self.names_synced, mark)
