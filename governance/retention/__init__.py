"""Retention: policies, holds, plans and runs."""

from __future__ import annotations


def register() -> None:
    from governance import projectors  # noqa: F401
