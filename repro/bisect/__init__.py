"""The search: which trial next, what its answers mean, when to stop. Pure: no clock, file, process or printing."""

from repro.bisect.plan import Plan, plan
from repro.bisect.search import SearchOptions, search

__all__ = ["Plan", "SearchOptions", "plan", "search"]
