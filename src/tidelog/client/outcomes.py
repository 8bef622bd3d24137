"""What became of each of several things asked for at once."""

from __future__ import annotations

from typing import TypeVar

from tidelog.errors import BrokerError

K = TypeVar("K")
V = TypeVar("V")


class Outcomes(dict[K, V | BrokerError]):
    """For each the result, or the BrokerError that stood in the way.

    outcomes = await admin.create_topics([...])
    outcomes["orders"]          a result or an error
    outcomes.errors             those that failed
    outcomes.results()          all results; raises if anything failed
    """

    @property
    def errors(self) -> dict[K, BrokerError]:
        return {key: outcome for key, outcome in self.items() if isinstance(outcome, BrokerError)}

    def results(self) -> dict[K, V]:
        """All results, by what was asked. One error is raised as it is, several as an ExceptionGroup."""
        errors = list(self.errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(self)} were refused", errors)
        return {key: outcome for key, outcome in self.items() if not isinstance(outcome, BrokerError)}

    def result(self, key: K) -> V:
        """One of them, or its error raised."""
        outcome = self[key]
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome
