from sessions_app.services.sessions import (
    end_idle_sessions,
    end_session,
    end_unattended,
    find_session,
    pause_session,
    resume_session,
    start_session,
)
from sessions_app.services.work import record_commit, record_commits
