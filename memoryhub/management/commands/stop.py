from __future__ import annotations

from typing import Any

from memoryhub.core.autostart import is_allowed
from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.ops.serving.process import stop_running


class Command(HubCommand):
    help = (
        "Stop the hub of this home, and return when it has ended. The next client starts it again, unless "
        "`autostart` is off."
    )
    group = CommandGroup.RUN
    is_slim = True

    def handle(self, *args: Any, **options: Any) -> None:
        running = stop_running()
        if running is None:
            self.stdout.write("No hub runs in this home.")
            return
        again = " The next client starts it again; `autostart = false` in config.toml prevents that."
        self.stdout.write(f"Stopped the hub (process {running.pid}).{again if is_allowed() else ''}")
