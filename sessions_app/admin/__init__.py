from sessions_app.admin.commits import CommitAdmin
from sessions_app.admin.iterations import IterationAdmin
from sessions_app.admin.sessions import SessionAdmin
from sessions_app.admin.turns import TurnAdmin

__all__ = ["CommitAdmin", "IterationAdmin", "SessionAdmin", "TurnAdmin"]
