from __future__ import annotations

import getpass
import signal
import webbrowser
from argparse import SUPPRESS
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core.origin import use_origin
from memoryhub.core.secret_files import SECRET_FILES, read_or_create_secret
from memoryhub.management.base import Group, HubCommand

WORKER_GRACE_SECONDS = 1.5


class Command(HubCommand):
    help = "Serve the admin, REST and MCP on this machine, run jobs, and print a sign-in link. Ctrl-C stops everything."
    group = Group.RUN

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8321, help="0 chooses a free port (default: %(default)s)")
        parser.add_argument("--no-worker", action="store_true", help="no jobs and no semantic search")
        parser.add_argument("--on-demand", action="store_true", help="log to a file, and end when idle; clients use it")
        parser.add_argument("--service", action="store_true", help=SUPPRESS)
        parser.add_argument("--open", action="store_true", help="open the link in the browser")

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.mcp.mount import McpMount
        from memoryhub.ops.serving import lock, web
        from memoryhub.ops.serving.listener import address_of
        from memoryhub.ops.serving.on_demand import Idle, log_to_file
        from memoryhub.ops.serving.worker import Worker

        on_demand = options["on_demand"]
        if on_demand:
            if lock.find_running():
                return
            log_to_file()
        for name in SECRET_FILES:
            read_or_create_secret(name)
        started = lock.ON_DEMAND if on_demand else lock.SERVICE if options["service"] else lock.BY_HAND
        host, port = options["host"], options["port"]
        with (
            lock.hold(started=started) as publish,
            web.listen_anywhere(port) if on_demand else web.listen(host, port) as listener,
        ):
            address = address_of(listener)
            publish(address)
            self._prepare()
            children = [] if options["no_worker"] else [Worker(module) for module in self._modules()]
            # Until the server handles signals itself, SIGTERM interrupts as Ctrl-C does
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                self._announce(address, signs_in=not on_demand, open_it=options["open"])
                web.serve(listener, idle=Idle() if on_demand else None, mount=McpMount)
            except KeyboardInterrupt:
                pass
            finally:
                for child in children:
                    child.stop(grace=WORKER_GRACE_SECONDS)

    def _modules(self) -> list[str]:
        from memories.embeddings.choice import can_run
        from memoryhub.ops.serving.worker import EMBEDDING, WORKER

        return [WORKER, EMBEDDING] if can_run() else [WORKER]

    def _prepare(self) -> None:
        from memoryhub.config.project_settings import config_problem
        from memoryhub.ops import jobs
        from memoryhub.ops.serving.worker import prepare_databases

        if problem := config_problem():
            self.stderr.write(f"Nothing that depends on settings works until this is fixed: {problem}.")
        for backup in prepare_databases():
            self.stdout.write(f"Backed up before the upgrade: {backup}")
        jobs.install_schedules()

    def _announce(self, address: str, *, signs_in: bool, open_it: bool) -> None:
        self.stdout.write(f"Memory Hub serves {env.home()} at {address}/")
        if not signs_in:
            return
        from memoryhub.web import signin

        with use_origin(source="cli", actor=getpass.getuser()):
            token = signin.create_link_token(username=signin.ensure_owner().username)
        link = signin.link(address, token)
        self.stdout.write(f"Sign in once, within 15 minutes: {link}")
        self.stdout.flush()
        if open_it:
            webbrowser.open(link)
