"""What callers send and get: the same at REST and MCP."""

from sessions_app.schemas.commits import ChangedFile, CommitRead, CommitRecord, CommitView
from sessions_app.schemas.iterations import (
    IterationAdvance,
    IterationComplete,
    IterationGet,
    IterationList,
    IterationStart,
    IterationView,
)
from sessions_app.schemas.profile import OrgDescribe, ProfileView, ProjectDescribe, SettingsChange
from sessions_app.schemas.sessions import SessionEnd, SessionList, SessionStart, SessionTouch, SessionView
from sessions_app.schemas.turns import EventAppend, TurnBegin, TurnCall, TurnEnd, TurnList, TurnView

__all__ = [
    "ChangedFile",
    "CommitRead",
    "CommitRecord",
    "CommitView",
    "EventAppend",
    "IterationAdvance",
    "IterationComplete",
    "IterationGet",
    "IterationList",
    "IterationStart",
    "IterationView",
    "OrgDescribe",
    "ProfileView",
    "ProjectDescribe",
    "SessionEnd",
    "SessionList",
    "SessionStart",
    "SessionTouch",
    "SessionView",
    "SettingsChange",
    "TurnBegin",
    "TurnCall",
    "TurnEnd",
    "TurnList",
    "TurnView",
]
