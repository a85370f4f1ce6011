"""What of this app has an id that others can name; the project itself has the id 0."""

from __future__ import annotations

from memoryhub.core.entities import define_entity

define_entity(
    "project",
    "SELECT 0 AS id, coalesce((SELECT name FROM sessions_app_profile LIMIT 1), '') AS title, '' AS kind, 0 AS deleted",
)
define_entity(
    "session",
    "SELECT id, CASE purpose WHEN '' THEN session_id ELSE purpose END AS title, '' AS kind, 0 AS deleted "
    "FROM sessions_app_session",
    shown_by="session_list",
)
define_entity(
    "commit", "SELECT id, substr(message, 1, 200) AS title, '' AS kind, 0 AS deleted FROM sessions_app_commit"
)
