"""Whether the server, the database and the roles are what a hub needs."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core.backends.postgresql.schemas import HEADS, HUB, JOBS, direct
from memoryhub.core.backends.postgresql.servers import place_of

_OLDEST = 15
# Of the connections that the server allows
_MOST_USED = 0.8
_WHERE = "the database"

Problem = tuple[str, str, str]

_SERVER = (
    "SELECT current_setting('server_version_num')::int / 10000, pg_encoding_to_char(encoding), "
    "has_database_privilege(current_database(), 'CREATE') FROM pg_database WHERE datname = current_database()"
)
_CONNECTIONS = (
    "SELECT count(*), current_setting('max_connections')::int "
    "- current_setting('superuser_reserved_connections')::int FROM pg_stat_activity "
    "WHERE backend_type = 'client backend'"
)
_SETTINGS = "SELECT current_setting('synchronous_commit'), pg_is_in_recovery()"
# Stores whose schema belongs to a role that the hub can't become, or that may use other schemas of the hub
_ROLES = """
SELECT n.nspname, o.rolname, pg_has_role(current_user, o.oid, 'MEMBER'),
    o.rolname <> current_user AND EXISTS (SELECT 1 FROM pg_namespace h WHERE h.nspname IN (%s, %s, %s)
        AND has_schema_privilege(o.oid, h.oid, 'USAGE'))
FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner
JOIN pg_description d ON d.objoid = n.oid AND d.classoid = 'pg_namespace'::regclass
WHERE d.description ~ '^(project|org|global):' ORDER BY n.nspname
"""


def address() -> str:
    return place_of(env.database_url())


def problems() -> Iterator[Problem]:
    """Yield where, what is wrong, and its repair."""
    try:
        ((version, encoding, creates),) = direct().rows(_SERVER)
    except DatabaseError as error:
        yield (
            f"{_WHERE} at {place_of(env.database_url())}",
            f"it can't be reached: {str(error).strip()}",
            f"start the server, or correct {env.DATABASE_VARIABLE}; the hub reconnects automatically",
        )
        return
    if version < _OLDEST:
        yield _WHERE, f"it is PostgreSQL {version}", f"the hub needs version {_OLDEST} or newer: upgrade the server"
    if encoding != "UTF8":
        yield (
            _WHERE,
            f"its encoding is {encoding}",
            "create a database with ENCODING 'UTF8', and move everything there with `memory-hub move --all --to URL`",
        )
    if not creates:
        yield (
            _WHERE,
            "the hub's role may not create schemas there",
            "GRANT CREATE ON DATABASE to the role, or let it own the database",
        )
    yield from _settings()
    yield from _roles()


def _settings() -> Iterator[Problem]:
    ((synchronous, is_standby),) = direct().rows(_SETTINGS)
    if synchronous == "off":
        what = "synchronous_commit is off: a write that was acknowledged can be lost when the server stops"
        yield _WHERE, what, "set it to on, in the server's settings or those of the hub's role"
    if is_standby:
        yield _WHERE, "it is a standby, which takes no writes", "name the primary, or promote this server"
    ((used, most),) = direct().rows(_CONNECTIONS)
    if used > most * _MOST_USED:
        what = f"{used} of {most} connections are used"
        yield _WHERE, what, "raise max_connections, or put a pooler in transaction mode before it, such as PgBouncer"


def _roles() -> Iterator[Problem]:
    for schema, owner, is_member, reaches in direct().rows(_ROLES, [HUB, JOBS, HEADS]):
        if not is_member:
            what = f"it belongs to the role {owner}, which the hub can't become"
            yield f"schema {schema}", what, f'GRANT "{owner}" TO the hub\'s role'
        elif reaches:
            what = f"its role {owner} may use the hub's own schemas"
            yield f"schema {schema}", what, f'REVOKE ALL ON SCHEMA {HUB}, {JOBS}, {HEADS} FROM "{owner}", PUBLIC'
