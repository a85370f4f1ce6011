from __future__ import annotations

from typing import Any

from memoryhub.config.repository import working_folder
from memoryhub.management.base import ProjectCommand, progress_bar, use_cli_origin
from memoryhub.transfer.start import plan_start, run_start


class Command(ProjectCommand):
    help = "Import what this machine knows of this repository, connect the clients, start the hub and open it."

    def handle(self, *args: Any, **options: Any) -> None:
        plan = plan_start(working_folder(), options["project"])
        for part in plan.parts:
            self.stdout.write(f"{part}")
        for remark in plan.remarks:
            self.stdout.write(remark)
        done = 0
        with use_cli_origin(), progress_bar("entries", plan.total) as advance:

            def add(count: int) -> None:
                nonlocal done
                done += count
                advance(done)

            print(run_start(plan, progress=add))
