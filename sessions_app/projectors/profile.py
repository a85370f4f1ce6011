"""The profile of the store: what was last said of each part of it."""

from __future__ import annotations

from memoryhub.core import rows
from memoryhub.core.projection import Event, projects
from sessions_app.events.profile import PROJECT_DESCRIBED, ProjectDescribed
from sessions_app.models import Profile


@projects(PROJECT_DESCRIBED)
def describe(event: Event[ProjectDescribed]) -> None:
    """Change what was set, in the one row that there is."""
    said = {name: getattr(event.payload, name) for name in sorted(event.payload.model_fields_set)}
    known = rows.fetch("SELECT id FROM sessions_app_profile")
    if known:
        rows.update(Profile, known[0][0], **said, updated_at=event.occurred_at)
    else:
        rows.insert(Profile, id=event.position, **said, updated_at=event.occurred_at)
