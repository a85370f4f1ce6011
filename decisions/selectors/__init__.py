from decisions.selectors.decisions import commits_of, decisions_of_commits, find_decision, find_decisions, views
from decisions.selectors.edges import ancestors, descendants, heads, path_between
from decisions.selectors.reading import (
    count_by_status,
    filtered,
    get_decisions,
    lineage_of,
    list_decisions,
    suggest_decisions,
)

__all__ = [
    "ancestors",
    "commits_of",
    "count_by_status",
    "decisions_of_commits",
    "descendants",
    "filtered",
    "find_decision",
    "find_decisions",
    "get_decisions",
    "heads",
    "lineage_of",
    "list_decisions",
    "path_between",
    "suggest_decisions",
    "views",
]
