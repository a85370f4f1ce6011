from sessions_app.services.commits import RecordReport, record_commit, record_commits
from sessions_app.services.sessions import (
    end_idle_sessions,
    end_session,
    end_unattended,
    find_session,
    pause_session,
    resume_session,
    start_session,
)

__all__ = [
    "RecordReport",
    "end_idle_sessions",
    "end_session",
    "end_unattended",
    "find_session",
    "pause_session",
    "record_commit",
    "record_commits",
    "resume_session",
    "start_session",
]
