from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from governance.present import hold_line, plan_lines, run_lines
from governance.retention.schemas import HoldLift, HoldPlace, Plan, RetentionPlanRequest, RetentionRunRequest
from governance.retention.selectors import list_holds, list_runs, plan_retention
from governance.retention.service import lift_hold, place_hold, run_retention
from memoryhub.core import clock
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, entity_id, progress_bar


class Command(StoreCommand):
    help = "Preview and run retention, and place holds on what must be kept."
    is_slim = False
    reads = ("plan", "runs", "holds")

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True, metavar="plan|run|runs|hold|holds|lift")
        plan = kinds.add_parser("plan", help="show what would be deleted now, and what is kept and why")
        run = kinds.add_parser("run", help="permanently delete what the plan lists; asks for the project's name")
        run.add_argument("--yes", action="store_true", help="don't ask")
        run.add_argument("--digest", metavar="HEX", help="only if the plan still has this digest")
        for command in (plan, run):
            command.add_argument("--now", metavar="TIME", help="plan for this time (ISO 8601)")
        hold = kinds.add_parser("hold", help="protect something from deletion until the hold is lifted")
        hold.add_argument("stream_id", metavar="STREAM", help="memory:12, decision:7, session:<name>, …; * for all")
        lift = kinds.add_parser("lift", help="lift a hold")
        lift.add_argument("id", metavar="HOLD", type=entity_id, help="id of the hold")
        hold.add_argument("--reason", required=True, help="reason")
        lift.add_argument("--reason", help="reason")
        lists = [kinds.add_parser("holds", help="list holds in force"), kinds.add_parser("runs", help="list runs")]
        for command in (plan, run, hold, lift, *lists):
            super().add_arguments(command)

    def handle(self, *args: Any, **options: Any) -> None:
        with self.store(options) as project:
            getattr(self, f"_{options['kind']}")(project, options)

    def _plan(self, _project: str, options: dict[str, Any]) -> None:
        plan = plan_retention(command=command_from(RetentionPlanRequest, options))
        self.answer(plan, plan_lines(plan))

    def _run(self, project: str, options: dict[str, Any]) -> None:
        plan = plan_retention(command=command_from(RetentionPlanRequest, options))
        if not plan.going and not plan.unfinished:
            self.stdout.write("nothing to delete")
            return
        if not options["yes"]:
            self._confirm(project, plan)
        request = command_from(RetentionRunRequest, {**options, "digest": options["digest"] or plan.digest})
        with progress_bar("retention", plan.things) as advance:
            run = run_retention(command=request, progress=lambda count, _total: advance(count))
        lines = run_lines(run) if run else ["nothing to delete any more"]
        self.stdout.write("\n".join(lines))

    def _confirm(self, project: str, plan: Plan) -> None:
        self.stdout.write("\n".join(plan_lines(plan)))
        self.stdout.write(f"This can't be undone. Type {project} to delete permanently:")
        self.stdout.flush()
        if sys.stdin.readline().strip() != project:
            raise PreconditionFailed(f"nothing was deleted: {project} was not typed; --yes skips the question")

    def _hold(self, _project: str, options: dict[str, Any]) -> None:
        self.stdout.write(hold_line(place_hold(command=command_from(HoldPlace, options))))

    def _lift(self, _project: str, options: dict[str, Any]) -> None:
        hold = lift_hold(command=command_from(HoldLift, options))
        self.stdout.write(flat(f"hold #{hold.id} on {hold.stream_id} was lifted"))

    def _holds(self, _project: str, _options: dict[str, Any]) -> None:
        holds = list_holds()
        self.answer(holds, [*map(hold_line, holds.results)] or ["no holds in force"])

    def _runs(self, _project: str, _options: dict[str, Any]) -> None:
        runs = list_runs()
        lines = []
        for run in runs.results:
            ended = "interrupted; run retention again to finish it"
            if run.ran_at:
                ended = f"deleted {counted(run.events, 'event')}"
            lines.append(flat(f"#{run.id} {clock.minute(run.began_at)} by {run.actor} ({run.source}): {ended}"))
        self.answer(runs, lines or ["no runs yet"])
