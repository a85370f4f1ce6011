"""The table of silent damage, second part: tables that are made from the log."""

from __future__ import annotations

from tests.torture.damage import Damage
from tests.torture.damages_of_stores import REBUILD

REINDEX = r"`memory-hub (jobs )?(reindex|rebuild) --project demo"
_A_MEMORY = "(SELECT max(id) FROM memories_memory WHERE deleted_at IS NULL)"

READ_MODELS = (
    Damage(
        "memory's row changed",
        lambda at: at.sql(f"UPDATE memories_memory SET content = 'forged' WHERE id = {_A_MEMORY}"),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "memory's row deleted",
        lambda at: at.sql("DELETE FROM memories_memory WHERE id = (SELECT min(id) FROM memories_memory)"),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "memory's row added",
        lambda at: at.sql(
            "CREATE TEMP TABLE one AS SELECT * FROM memories_memory LIMIT 1",
            "UPDATE one SET id = 9999, topic_key = 'forged', content = 'forged'",
            "INSERT INTO memories_memory SELECT * FROM one",
        ),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "decision's status forged",
        lambda at: at.sql("UPDATE decisions_decision SET status = 'active' WHERE status = 'superseded'"),
        "decisions_decision",
        REBUILD,
    ),
    Damage(
        "decisions' edges deleted",
        lambda at: at.sql("DELETE FROM decisions_decisionedge"),
        "decisions_decisionedge",
        REBUILD,
    ),
    Damage(
        "session's row changed",
        lambda at: at.sql("UPDATE sessions_app_session SET summary = 'forged' WHERE id = 3 OR 1"),
        "sessions_app_session",
        REBUILD,
    ),
    Damage("tags deleted", lambda at: at.sql("DELETE FROM memories_memorytag"), "memories_memorytag", REBUILD),
    Damage("relations deleted", lambda at: at.sql("DELETE FROM memories_relation"), "memories_relation", REBUILD),
    Damage(
        "search documents deleted",
        lambda at: at.sql("DELETE FROM memories_searchdocument WHERE id < 100"),
        "memories_searchdocument|search index",
        REINDEX,
    ),
    Damage(
        "words deleted from the full text",
        lambda at: at.sql("DELETE FROM search_fts WHERE rowid < 100"),
        "full-text|search_fts",
        REINDEX,
    ),
    Damage(
        "words changed in the full text",
        lambda at: at.sql("INSERT OR REPLACE INTO search_fts (rowid, title, body) VALUES (165, 'forged', 'forged')"),
        "full-text|search_fts",
        REINDEX,
    ),
    Damage("full-text index dropped", lambda at: at.sql("DROP TABLE search_fts"), "full-text", REINDEX),
    Damage("index of a read model dropped", lambda at: at.sql("DROP INDEX memory_title"), "memory_title", REBUILD),
    Damage(
        "table of a read model dropped", lambda at: at.sql("DROP TABLE decisions_artifactlink"), "artifactlink", REBUILD
    ),
    Damage(
        "list of migrations emptied", lambda at: at.sql("DELETE FROM django_migrations"), "django_migrations", REBUILD
    ),
)
