from __future__ import annotations

import getpass
import signal
import webbrowser
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core.origin import use_origin
from memoryhub.core.secret_files import SECRET_FILES, read_or_create_secret
from memoryhub.management.base import HubCommand

WORKER_GRACE_SECONDS = 1.5


class Command(HubCommand):
    help = "Serve the admin and REST on this machine, run jobs, and print a sign-in link. Ctrl-C stops everything."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8321, help="0 chooses a free port (default: %(default)s)")
        parser.add_argument("--no-worker", action="store_true", help="no jobs and no semantic search")
        parser.add_argument("--open", action="store_true", help="open the link in the browser")

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.ops.serving import lock, web
        from memoryhub.ops.serving.worker import Worker

        for name in SECRET_FILES:
            read_or_create_secret(name)
        with lock.hold() as publish, web.listen(options["host"], options["port"]) as listener:
            address = web.address_of(listener)
            publish(address)
            link = self._prepare(address)
            children = [] if options["no_worker"] else [Worker(module) for module in self._modules()]
            # Until the server handles signals itself, SIGTERM interrupts as Ctrl-C does
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                self._announce(address, link, open_it=options["open"])
                web.serve(listener)
            except KeyboardInterrupt:
                pass
            finally:
                for child in children:
                    child.stop(grace=WORKER_GRACE_SECONDS)

    def _modules(self) -> list[str]:
        from memories.embeddings.choice import can_run
        from memoryhub.ops.serving.worker import EMBEDDING, WORKER

        return [WORKER, EMBEDDING] if can_run() else [WORKER]

    def _prepare(self, address: str) -> str:
        from memoryhub.config.project_settings import config_problem
        from memoryhub.ops import jobs
        from memoryhub.ops.serving.worker import prepare_databases
        from memoryhub.web import signin

        if problem := config_problem():
            self.stderr.write(f"Nothing that depends on settings works until this is fixed: {problem}.")
        for backup in prepare_databases():
            self.stdout.write(f"Backed up before the upgrade: {backup}")
        jobs.install_schedules()
        with use_origin(source="cli", actor=getpass.getuser()):
            token = signin.create_link_token(username=signin.ensure_owner().username)
        return signin.link(address, token)

    def _announce(self, address: str, link: str, *, open_it: bool) -> None:
        self.stdout.write(f"Memory Hub serves {env.home()} at {address}/")
        self.stdout.write(f"Sign in once, within 15 minutes: {link}")
        self.stdout.flush()
        if open_it:
            webbrowser.open(link)
