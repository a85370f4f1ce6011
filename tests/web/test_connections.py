"""How many connections are held, and that they leave files for everything else."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import select
import socket
import tempfile
from pathlib import Path
from unittest import TestCase, mock

from memoryhub.core.backends.sqlite import wiping
from memoryhub.ops.serving.connections import Connections, Listener, most_connections, raise_file_limit
from memoryhub.ops.serving.listener import bind
from tests.home import run_home
from tests.server_processes import free_port
from tests.web.public_server import make_certificate, read_all, status_of
from tests.web.server import DEADLINE_SECONDS, serving


class ListenerTests(TestCase):
    def listen(self, connections: Connections) -> Listener:
        listener = self.enterContext(bind("127.0.0.1", 0, option="--port"))
        listener.setblocking(False)
        listener.connections = connections
        return listener

    def connect(self, listener: Listener, source: str = "127.0.0.1") -> socket.socket:
        place = listener.getsockname()
        return self.enterContext(socket.create_connection(place, DEADLINE_SECONDS, source_address=(source, 0)))

    def test_a_connection_counts_from_its_acceptance_to_its_end(self):
        connections = Connections(2)
        listener = self.listen(connections)
        clients = [self.connect(listener) for _ in range(3)]
        held = [listener.accept()[0] for _ in range(2)]
        with self.assertRaises(BlockingIOError):
            listener.accept()
        self.assertEqual(status_of(read_all(clients[2])), 503)
        self.assertEqual(connections.total, 2)
        held[0].close()
        held[0].close()
        self.assertEqual(connections.total, 1)
        self.connect(listener)
        listener.accept()[0].close()
        held[1].close()
        self.assertEqual(connections.total, 0)

    def test_one_address_cannot_have_all_of_them(self):
        exempt = "127.0.0.9"
        connections = Connections(10, most_of_an_address=1, address_of=lambda peer: "" if peer == exempt else peer)
        listener = self.listen(connections)
        sources = ("127.0.0.2", "127.0.0.2", "127.0.0.3", exempt, exempt)
        for source in sources:
            self.connect(listener, source)
        with contextlib.ExitStack() as held:
            accepted = [listener.accept() for _ in range(4)]
            for connection, _ in accepted:
                held.enter_context(connection)
            self.assertEqual([address[0] for _, address in accepted], ["127.0.0.2", "127.0.0.3", exempt, exempt])
        self.assertEqual(connections.total, 0)


class FileTests(TestCase):
    def test_connections_leave_files_for_databases(self):
        self.assertEqual(most_connections(2_000, 1_024), 256)
        self.assertEqual(most_connections(2_000, 65_536), 2_000)

    def test_the_soft_limit_of_files_is_raised(self):
        with (
            mock.patch.object(resource, "getrlimit", return_value=(1_024, 4_096)),
            mock.patch.object(resource, "setrlimit") as changed,
        ):
            self.assertEqual(raise_file_limit(), 4_096)
        changed.assert_called_once_with(resource.RLIMIT_NOFILE, (4_096, 4_096))

    def test_the_write_ahead_logs_are_kept_short_after_files_ran_out(self):
        stop = mock.Mock()
        stop.wait.side_effect = [False, False, True]
        failure = OSError(errno.EMFILE, "Too many open files")
        with (
            mock.patch.object(wiping, "shorten_all", side_effect=[failure, []]) as shorten_all,
            self.assertLogs("memoryhub.core.backends.sqlite.wiping", "ERROR"),
        ):
            wiping.keep(stop)
        self.assertEqual(shorten_all.call_count, 2)


class HandshakeTests(TestCase):
    def test_handshakes_that_are_not_made_count_and_leave_the_machine_its_own(self):
        with tempfile.TemporaryDirectory(dir=run_home()) as folder, contextlib.ExitStack() as stack:
            cert, key = make_certificate(Path(folder), "127.0.0.1")
            port = free_port()
            options = ("--listen", f"127.0.0.1:{port}", "--tls-cert", str(cert), "--tls-key", str(key))
            limits = json.dumps({"connections": 3})
            stack.enter_context(mock.patch.dict("os.environ", MEMORY_HUB_LIMITS=limits))
            server = stack.enter_context(serving("--no-worker", "--public-url", f"https://127.0.0.1:{port}", *options))
            place = ("127.0.0.1", port)
            silent = [stack.enter_context(socket.create_connection(place, DEADLINE_SECONDS)) for _ in range(4)]
            self.assertEqual(select.select(silent, [], [], DEADLINE_SECONDS)[0], [silent[3]])
            self.assertEqual(read_all(silent[3]), b"")
            self.assertEqual(server.api("GET", "projects").status, 200)
