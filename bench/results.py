"""What was measured, what was hoped for, and whether the one reached the other. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

ADEQUATE, SHORT, NO_VERDICT = "ok", "short", ""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the figure itself, or on its ratio to the reference."""

    bound: float
    at_least: bool
    of_ratio: bool = False

    def met(self, row_figure: float) -> bool:
        return row_figure >= self.bound if self.at_least else row_figure < self.bound


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def below(bound: float) -> Target:
    return Target(bound, at_least=False)


def ratio_at_least(bound: float) -> Target:
    return Target(bound, at_least=True, of_ratio=True)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    measured: float
    unit: str
    target: Target | None = None
    reference: float | None = None
    """The same figure of the peer that `peer` names."""
    peer: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.measured / self.reference if self.reference else None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return NO_VERDICT
        figure = self.ratio if self.target.of_ratio else self.measured
        if figure is None:
            return NO_VERDICT
        return ADEQUATE if self.target.met(figure) else SHORT

    def against(self, peer: str, reference: float | None, note: str) -> Row:
        return replace(self, peer=peer, reference=reference, note=note)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "verdict": self.verdict}


def measured_text(figure: float, unit: str) -> str:
    """Three significant digits or more, thousands apart: nobody compares the fifth digit of a benchmark."""
    if figure >= 100:
        return f"{figure:,.0f} {unit}"
    return f"{figure:.3g} {unit}"


def target_text(row: Row) -> str:
    target = row.target
    if target is None:
        return ""
    sign = ">=" if target.at_least else "<"
    if target.of_ratio:
        return f"{sign} {target.bound:g} of {row.peer}"
    return f"{sign} {measured_text(target.bound, row.unit)}"


def reference_text(row: Row) -> str:
    if row.reference is None:
        return ""
    return f"{measured_text(row.reference, row.unit)} ({row.peer})"


def ratio_text(row: Row) -> str:
    return "" if row.ratio is None else f"{row.ratio:.2f}"
