"""What the current store says of itself: a project's profile, or an organisation's."""

from __future__ import annotations

from memoryhub.core import rows
from sessions_app.models import Profile
from sessions_app.schemas import ProfileView


def profile() -> ProfileView:
    """Return the profile of the current store."""
    found = Profile.objects.first()
    if found is None:
        return ProfileView()
    return ProfileView(**{name: getattr(found, name) for name in ProfileView.model_fields})


def org_of_project() -> str | None:
    """Return the id of the organisation that the current project belongs to, or None."""
    found = rows.fetch("SELECT org FROM sessions_app_profile")
    return found[0][0] if found else None


def root_of_project() -> str:
    """Return the folder in which the current project's repository is; "" where nobody has said it."""
    found = rows.fetch("SELECT root_path FROM sessions_app_profile")
    return found[0][0] if found else ""
