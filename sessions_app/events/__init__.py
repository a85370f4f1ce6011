"""What can happen: to sessions and turns, in the repository, in iterations, and what clients tell of it."""

from sessions_app.events.sessions import (
    PROJECT_CONFIGURED,
    SESSION_ENDED,
    SESSION_PAUSED,
    SESSION_RESUMED,
    SESSION_STARTED,
    ProjectConfigured,
    SessionEnded,
    SessionStarted,
    SessionTouched,
)
from sessions_app.events.work import (
    COMMIT_LINKED,
    COMMIT_RECORDED,
    PROJECT_DESCRIBED,
    CommitLinked,
    CommitRecorded,
    DecisionLink,
    FileChange,
    ProjectDescribed,
)

__all__ = [
    "COMMIT_LINKED",
    "COMMIT_RECORDED",
    "PROJECT_CONFIGURED",
    "PROJECT_DESCRIBED",
    "SESSION_ENDED",
    "SESSION_PAUSED",
    "SESSION_RESUMED",
    "SESSION_STARTED",
    "CommitLinked",
    "CommitRecorded",
    "DecisionLink",
    "FileChange",
    "ProjectConfigured",
    "ProjectDescribed",
    "SessionEnded",
    "SessionStarted",
    "SessionTouched",
]
