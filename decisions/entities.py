"""What of this app has an id that others can name."""

from __future__ import annotations

from memoryhub.core.entities import define_entity

define_entity("decision", "SELECT id, title, '' AS kind, 0 AS deleted FROM decisions_decision", shown_by="decision_get")
