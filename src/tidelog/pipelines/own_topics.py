"""Topics that Tidelog keeps for itself. Brokers do not know that they are internal, so that patterns have to."""

from __future__ import annotations

from typing import Final

DECISIONS: Final = "__tidelog_decisions"
"""Of sinks that write exactly once."""
OWN_TOPICS: Final = frozenset({DECISIONS})
