from __future__ import annotations

import getpass

from whitenoise.runserver_nostatic.management.commands.runserver import Command as RunserverCommand

from memoryhub.core.origin import use_origin
from memoryhub.web import signin


class Command(RunserverCommand):  # type: ignore[misc]
    """Django's development server, which also prints a sign-in link, because the hub has no passwords."""

    def on_bind(self, server_port: int) -> None:
        super().on_bind(server_port)
        host = f"[{self.addr}]" if self._raw_ipv6 else self.addr
        with use_origin(source="cli", actor=getpass.getuser()):
            link = signin.new_link(f"http://{host}:{server_port}")
        self.stdout.write(f"Sign in once, within 15 minutes: {link}")
