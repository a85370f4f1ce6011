"""Connections to schemas that are not open stores: templates, copies, views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.utils import load_backend

from memoryhub import env
from memoryhub.core.backends.postgresql.options import connection_settings


@contextmanager
def connected(schema: str, alias: str = "store:template:new", *, url: str = "", role: str = "") -> Iterator[Any]:
    """Connect to a schema under an alias that only this thread has."""
    settings = {**connections.settings["default"], **connection_settings(url or env.database_url(), schema, role=role)}
    connection = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, alias)
    connections[alias] = connection
    try:
        yield connection
    finally:
        connection.close()
        del connections[alias]
