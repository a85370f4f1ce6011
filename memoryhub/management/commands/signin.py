"""A new sign-in link to the running hub."""

from __future__ import annotations

from typing import Any

from memoryhub.core.commands import HubCommand
from memoryhub.core.errors import Unavailable


class Command(HubCommand):
    """``memory-hub signin``."""

    help = "Print a new link that signs you in to the running hub once, within 15 minutes."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the link."""
        from memoryhub import signin
        from memoryhub.serving import lock

        running = lock.find_running()
        if running is None:
            raise Unavailable("Memory Hub is not running; `memory-hub serve` starts it and prints a link")
        self.stdout.write(signin.link(running.address, signin.create_link_token()))
