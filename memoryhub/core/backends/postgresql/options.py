"""How hub databases are opened. Imports no Django, because settings use it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from memoryhub.env import DATABASE_VARIABLE, DatabaseUrlError

BUSY_TIMEOUT_SECONDS = 5.0


def require_usable(url: str) -> None:
    """Refuse an address that is not PostgreSQL's, or that this installation has no driver for.

    Raises:
        DatabaseUrlError: with what to do.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise DatabaseUrlError(f"{DATABASE_VARIABLE} must be like postgresql://USER:PASSWORD@HOST/DATABASE")
    if find_spec("psycopg") is None:
        raise DatabaseUrlError(
            f"{DATABASE_VARIABLE} needs psycopg: install it by `pip install 'django-memory-hub[postgresql]'`"
        )


def connection_settings(url: str, schema: str, *, role: str = "") -> dict[str, Any]:
    """Return the ``DATABASES`` entry of a schema.

    Args:
        url: the address of its database, as libpq reads it.
        schema: the schema that its statements see.
        role: the role that its statements run as; "" for the one that connects.
    """
    return {
        "ENGINE": "memoryhub.core.backends.postgresql",
        "NAME": schema,
        "URL": url,
        "SCHEMA": schema,
        "ROLE": role,
        "CONN_MAX_AGE": None,
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
