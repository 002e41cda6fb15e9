"""Spans of time, as sorted lists of disjoint pairs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]


def touch(one: Span, other: Span) -> bool:
    """Whether they have a moment in common."""
    return one[0] <= other[1] and other[0] <= one[1]


def union(spans: Iterable[Span]) -> list[Span]:
    """What at least one of them covers."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def both(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What both cover; both are as :func:`union` returns them."""
    found, rest = [], list(others)
    for start, end in spans:
        while rest and rest[0][1] <= start:
            rest.pop(0)
        found += [(max(start, other[0]), min(end, other[1])) for other in rest if other[0] < end]
    return found


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What is left of them outside of the others; both are as :func:`union` returns them."""
    if not spans:
        return []
    edges = [spans[0][0], *(edge for other in others for edge in other), spans[-1][1]]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    return both(spans, gaps)
