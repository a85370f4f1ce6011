"""The hub's own jobs."""

from __future__ import annotations

from memories.embeddings.following import embed_current_store
from memories.uses.drain import count_uses
from memories.uses.prune import prune_uses
from memoryhub.backups.jobs import back_up_target
from memoryhub.core.counter_files import fold_ended
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.wording import counted
from memoryhub.jobs.checking import verify_target
from memoryhub.jobs.making_anew import make_anew, reindex
from sessions_app.services import end_idle_sessions
from sessions_app.services.turns import expire_turns


def _counted(count: int, one: str, many: str) -> str:
    return counted(count, one, many) if count else ""


def _embed(run: Run) -> str:
    return embed_current_store(until=run.until)


def _expire(_run: Run) -> str:
    return _counted(expire_turns(), "turn left open", "turns left open")


def _end_sessions(_run: Run) -> str:
    return _counted(end_idle_sessions(), "session ended", "sessions ended")


def _count_uses(_run: Run) -> str:
    return _counted(count_uses(), "use counted", "uses counted")


def _prune_uses(run: Run) -> str:
    return _counted(prune_uses(until=run.until), "deleted memory's use forgotten", "deleted memories' uses forgotten")


def _fold(_run: Run) -> str:
    return _counted(fold_ended(), "process's counts folded", "processes' counts folded")


define_job(
    "embed texts",
    does="Makes the vectors of what was written since the last time, so that it is found by its meaning.",
    work=_embed,
    every=Every.MINUTE,
    cap=40,
)
define_job(
    "expire turns",
    does="Marks turns whose time has run out as incomplete.",
    work=_expire,
    every=Every.MINUTE,
    over=Over.PROJECTS,
    cap=60,
)
define_job(
    "end idle sessions",
    does="Ends the sessions in which nothing has happened for long, with what is known of them.",
    work=_end_sessions,
    every=Every.HOUR,
    over=Over.PROJECTS,
    cap=60,
)
define_job(
    "count uses",
    does="Writes down in the log which memories were read, found and cited.",
    work=_count_uses,
    every=Every.HOUR,
    cap=120,
)
define_job(
    "prune use statistics",
    does="Forgets how often memories were used that were deleted a month ago.",
    work=_prune_uses,
    every=Every.DAY,
    cap=120,
)
define_job(
    "fold counters",
    does="Adds what processes that have ended had counted to the hub's sums.",
    work=_fold,
    every=Every.HOUR,
    over=Over.HUB,
    cap=60,
)
define_job(
    "verify stores",
    does="Walks every chain to its anchored head, checks every page, and compares read models with the log.",
    work=verify_target,
    every=Every.DAY,
    cap=600,
    opened=False,
)
define_job(
    "backup",
    does="Copies a store while it is in use, verifies the copy, and keeps the last few.",
    work=back_up_target,
    every=Every.DAY,
    over=Over.ALL,
    cap=600,
)
define_job(
    "reindex",
    does="Makes the full-text index and the index of vectors anew beside the store, and puts them in place.",
    work=reindex,
    every=Every.DEMAND,
    cap=800,
)
define_job(
    "rebuild",
    does="Makes all read models anew from the log beside the store, compares them, and puts them in place.",
    work=make_anew,
    every=Every.DEMAND,
    cap=800,
    opened=False,
)
