from __future__ import annotations

import os
import webbrowser
from argparse import SUPPRESS
from contextlib import ExitStack
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core.errors import Unavailable
from memoryhub.core.secret_files import SECRET_FILES, read_or_create_secret
from memoryhub.management.base import CommandGroup, HubCommand, use_cli_origin, whole_number
from memoryhub.ops.serving.listener import PORT


class Command(HubCommand):
    help = "Serve the admin, REST and MCP on this machine, run jobs, and print a sign-in link. Ctrl-C stops everything."
    group = CommandGroup.RUN

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default: %(default)s)")
        parser.add_argument(
            "--port", type=whole_number, default=PORT, help="0 chooses a free port (default: %(default)s)"
        )
        parser.add_argument("--no-worker", action="store_true", help="no jobs and no semantic search")
        parser.add_argument("--on-demand", action="store_true", help="log to a file, and end when idle; clients use it")
        parser.add_argument("--service", action="store_true", help=SUPPRESS)
        parser.add_argument("--open", action="store_true", help="open the link in the browser")
        group = parser.add_argument_group("for a team, beside the loopback address; also by environment")
        group.add_argument("--listen", metavar="HOST:PORT", help="an address for other machines, such as 0.0.0.0:8443")
        group.add_argument("--public-url", metavar="URL", help="what people and clients use: https://hub.example.org")
        group.add_argument("--tls-cert", metavar="FILE", help="the certificate chain (PEM), to serve HTTPS itself")
        group.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
        group.add_argument(
            "--trusted-proxy",
            metavar="ADDRESS",
            action="append",
            help="a proxy, or a network of them, whose X-Forwarded-* headers are believed; can be repeated",
        )
        group.add_argument(
            "--remote-user-header", metavar="NAME", help="such as Remote-User: the proxy's header that signs people in"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.core import autostart
        from memoryhub.management.command_socket import answer_commands
        from memoryhub.mcp import local, relay
        from memoryhub.mcp.mount import McpMount
        from memoryhub.ops.serving import process, web
        from memoryhub.ops.serving.edge import VARIABLE as LIMITS
        from memoryhub.ops.serving.edge import Limits
        from memoryhub.ops.serving.listener import address_of
        from memoryhub.ops.serving.network import Network

        on_demand = options["on_demand"]
        # A hub that a client starts is for this machine alone, whatever the client's environment has.
        network = Network() if on_demand else Network.from_options(options)
        started = process.SERVICE if options["service"] else process.BY_HAND
        limits = Limits.from_text(os.environ.get(LIMITS, ""))
        if on_demand:
            started = process.ON_DEMAND
            if process.find_running():
                autostart.note_started()
                return
            process.log_to_file()
        for name in SECRET_FILES:
            read_or_create_secret(name)
        host = options["host"]
        port = options["port"]
        if not (on_demand or network.listen or port == 0):
            self._require_free(host, port)
        with ExitStack() as stack:
            publish = stack.enter_context(process.hold_home(started=started))
            windows = stack.enter_context(local.listening(env.home() / relay.SOCKET))
            autostart.note_started()
            public = web.listen_publicly(network)
            if public:
                stack.enter_context(public)
            # Clients of this machine find the port in the lock's file, so a public address may have taken the default.
            is_any_port = on_demand or (public and port == PORT)
            listener = stack.enter_context(web.listen_anywhere(port) if is_any_port else web.listen(host, port))
            address = address_of(listener)
            stack.enter_context(publish(address, network.public_url))
            self._prepare()
            stack.enter_context(answer_commands())
            ending = web.Ending()
            if not options["no_worker"]:
                self._run_workers(stack)
            self._announce(address, network.public_url, signs_in=not on_demand, open_it=options["open"])
            web.serve(
                listener,
                ending=ending,
                idle=process.Idle() if on_demand else None,
                mount=McpMount,
                windows=windows,
                public=public,
                network=network,
                limits=limits,
            )

    # Before a hub that a client started, on another port, gives way
    def _require_free(self, host: str, port: int) -> None:
        from memoryhub.ops.serving import process, web

        running = process.find_running()
        if running is None or running.address.endswith(f":{port}"):
            return
        try:
            web.listen(host, port).close()
        except Unavailable as error:
            hub = f"this home's hub runs at {running.address} (process {running.pid})"
            raise Unavailable(f"{error.message}; {hub}: `memory-hub signin` prints a link to it") from error

    def _run_workers(self, stack: ExitStack) -> None:
        from memories.embeddings.engine import can_run
        from memoryhub.ops.serving.embedding import run_model
        from memoryhub.ops.serving.worker import run_jobs

        stack.enter_context(run_jobs())
        if can_run():
            stack.enter_context(run_model())

    def _prepare(self) -> None:
        from memoryhub.config.current_settings import config_problem
        from memoryhub.ops import jobs
        from memoryhub.ops.hub_databases import prepare_databases

        if problem := config_problem():
            self.stderr.write(f"Nothing that depends on settings works until this is fixed: {problem}.")
        for backup in prepare_databases():
            self.stdout.write(f"Backed up before the upgrade: {backup}")
        jobs.install_schedules()

    def _announce(self, address: str, public_url: str, *, signs_in: bool, open_it: bool) -> None:
        from memoryhub.core.backends.selected import machines

        what = str(env.home())
        if machines.SHARED:
            what += f" with {machines.server_address()}"
        at = f"{address}/"
        if public_url:
            at = f"{public_url}/, and on this machine at {at}"
        self.stdout.write(f"Memory Hub serves {what} at {at}")
        if not signs_in:
            return
        from memoryhub.web import signin

        with use_cli_origin():
            link = signin.new_link(public_url or address)
        self.stdout.write(f"Sign in once, within 15 minutes: {link}")
        self.stdout.flush()
        if open_it:
            webbrowser.open(link)
