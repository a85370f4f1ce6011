from __future__ import annotations

import signal
import tempfile
from pathlib import Path

from django.test import tag

from tests.mcp.client import HANDSHAKE, Client, McpTestCase, ProcessTestCase, wait_until


class CancellingCalls(McpTestCase):
    def test_a_cancelled_read_frees_its_thread(self) -> None:
        server = self.connect()
        endless = [server.request("tools/call", {"name": "test_endless", "arguments": {}}) for _ in range(2)]
        waiting = server.request("tools/call", {"name": "test_echo", "arguments": {"text": "at last"}})
        server.ask("ping")
        for number in endless:
            server.notify("notifications/cancelled", {"requestId": number, "reason": "too slow"})
        answer = server.receive()
        self.assertEqual((answer["id"], answer["result"]["content"][0]["text"]), (waiting, "at last"))
        self.assertEqual(server.say("test_echo", text="on"), "on")

    def test_a_cancelled_write_finishes(self) -> None:
        with _trace() as path:
            server = self.connect()
            number = _write_slowly(server, path, until=_go(path))
            server.notify("notifications/cancelled", {"requestId": number})
            self.assertEqual(server.say("test_echo", text="on"), "on")
            _go(path).touch()
            wait_until(lambda: path.read_text() == "done")
            self.assertEqual(server.end()[0], 0)

    def test_slow_reads_do_not_delay_a_write(self) -> None:
        with _trace() as path:
            server = self.connect()
            for _ in range(2):
                server.request("tools/call", {"name": "test_endless", "arguments": {}})
            self.assertEqual(server.say("test_slow_write", path=str(path)), "written")


@tag("process")
class EndingTheProcess(ProcessTestCase):
    def test_a_signal_during_a_write_lets_it_finish_and_answer(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number), _trace() as path:
                server = self.connect()
                request = _write_slowly(server, path, seconds=1)
                server.process.send_signal(number)
                self.assertEqual([answer["id"] for answer in server.rest()], [request])
                self.assertEqual(path.read_text(), "done")
                self.assertEqual(server.wait()[0], 0)

    def test_the_end_of_input_during_a_write_lets_it_finish_and_answer(self) -> None:
        with _trace() as path:
            server = self.connect()
            request = _write_slowly(server, path, seconds=2)
            server.close_input()
            self.assertEqual([answer["id"] for answer in server.rest()], [request])
            self.assertEqual(path.read_text(), "done")
            self.assertEqual(server.wait()[0], 0)

    def test_a_write_that_its_caller_cancelled_outlives_signals_too(self) -> None:
        with _trace() as path:
            server = self.connect()
            request = _write_slowly(server, path, until=_go(path))
            server.notify("notifications/cancelled", {"requestId": request})
            server.ask("ping")
            server.close_input()
            for _ in range(3):
                server.process.terminate()
            _go(path).touch()
            self.assertEqual((server.rest(), server.wait()[0]), ([], 0))
            self.assertEqual(path.read_text(), "done")

    def test_a_signal_ends_reads_with_an_answer_and_drops_what_has_not_begun(self) -> None:
        with _trace() as begun, _trace() as queued:
            server = self.connect()
            reads = [server.request("tools/call", {"name": "test_endless", "arguments": {}}) for _ in range(3)]
            write = _write_slowly(server, begun, until=_go(begun))
            arguments = {"path": str(queued)}
            later = server.request("tools/call", {"name": "test_slow_write", "arguments": arguments})
            self.assertEqual(server.ask("ping")["result"], {})
            server.process.terminate()
            dropped = [server.receive() for _ in (*reads, later)]
            _go(begun).touch()
            answers = {answer["id"]: answer["result"] for answer in [*dropped, *server.rest()]}
            self.assertEqual(set(answers), {*reads, write, later})
            self.assertEqual(answers[write]["content"][0]["text"], "written")
            self.assertTrue(all("the server is stopping" in str(answers[number]) for number in (*reads, later)))
            self.assertEqual(queued.read_text(), "")
            self.assertEqual(server.wait()[0], 0)

    def test_a_signal_while_idle_and_one_before_the_server_is_up(self) -> None:
        server = self.connect()
        server.say("test_echo", text="up")
        early = self.start()
        early.initialize()
        for running in (server, early):
            running.process.terminate()
            self.assertEqual(running.wait()[0], 0)

    def test_a_client_that_sends_nothing_and_disconnects(self) -> None:
        self.assertEqual(self.start().end(), (0, ""))

    def test_a_client_that_stops_reading_and_disconnects(self) -> None:
        server = self.connect()
        assert server.process.stdout
        for _ in range(20):
            server.request("tools/call", {"name": "test_echo", "arguments": {"text": "x" * 100_000}})
        server.process.stdout.close()
        self.assertEqual(server.wait()[0], 0)

    def test_calls_sent_before_the_end_of_input_are_answered(self) -> None:
        server = self.start()
        server.initialize(HANDSHAKE[0])
        ids = [server.request("tools/call", {"name": "test_echo", "arguments": {"text": "x"}}) for _ in range(30)]
        server.close_input()
        self.assertEqual(sorted(answer["id"] for answer in server.rest()), ids)
        self.assertEqual(server.wait(), (0, ""))


class _trace:  # noqa: N801
    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "trace"
        path.write_text("")
        return path

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _go(path: Path) -> Path:
    return path.with_name("go")


def _write_slowly(server: Client, path: Path, *, seconds: float = 0, until: Path | None = None) -> int:
    """Start a write that takes ``seconds`` or waits for a file; return the request's id once it runs."""
    arguments = {"path": str(path), "seconds": seconds, "until": str(until or "")}
    number = server.request("tools/call", {"name": "test_slow_write", "arguments": arguments})
    wait_until(lambda: path.read_text() == "begun")
    return number
