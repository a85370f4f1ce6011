from sessions_app.admin.sessions import SessionAdmin, TurnAdmin
from sessions_app.admin.work import CommitAdmin, IterationAdmin

__all__ = ["CommitAdmin", "IterationAdmin", "SessionAdmin", "TurnAdmin"]
