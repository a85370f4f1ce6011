"""The server: built by a thread of the front, then run on the main thread."""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memoryhub.config.repository import working_folder
from memoryhub.mcp import sdk, snapshot
from memoryhub.mcp.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.server.lowlevel import Server

    from memoryhub.core.clients import ClientEntry
    from memoryhub.mcp.binding import Binding, TurnKeepers
    from memoryhub.mcp.calls import Calls, Questions
    from memoryhub.mcp.jsonrpc import Handover
    from memoryhub.mcp.pump import Pump
    from memoryhub.mcp.threads import Workers

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SNAPSHOT_DELAY_SECONDS = 1.0


def build(options: Options, key: list[str]) -> Hub:
    with sdk.uncollected():
        load()
        return assemble(options, working_folder(), key)


def assemble(options: Options, directory: Path, key: list[str]) -> Hub:
    """Return the server of a directory's project; all that it needs has been loaded."""
    from django.db import connections

    from memoryhub.core.windows import window
    from memoryhub.mcp import listing, pump  # noqa: F401  (imported before the handover, which must be quick)
    from memoryhub.mcp.binding import Binding, TurnKeepers
    from memoryhub.mcp.calls import Calls, Questions
    from memoryhub.mcp.server import build_server
    from memoryhub.mcp.threads import Workers

    workers = Workers(on_thread_end=connections.close_all)
    questions = Questions()
    binding = Binding(options.project, directory)
    keepers = TurnKeepers(binding, options.session, workers, window())
    calls = Calls(workers, binding, keepers)
    server = build_server(lambda _: calls, questions, profile=options.profile)
    listing.extend_for_tests(server)
    return Hub(server, calls, workers, questions, keepers, binding, options.profile, key)


def load(*, http: bool = False) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    sdk.load(http=http)
    import anyio
    import django

    anyio.run(anyio.sleep, 0)  # imports the backend before the first request
    with sdk.deferred_models():
        django.setup()
        from memoryhub.mcp import listing

        listing.load_tools()


@dataclass(slots=True)
class Hub:
    server: Server[Any]
    calls: Calls
    workers: Workers
    questions: Questions
    keepers: TurnKeepers
    binding: Binding
    profile: str
    # Cache key of the snapshot, computed before the imports
    key: list[str]
    _recording: threading.Lock = field(default_factory=threading.Lock)

    def run(self, handover: Handover) -> int:
        connection = self._connect()
        # SelectSelector accepts any descriptor; epoll refuses regular files.
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            runner.run(self.serve(handover, signals=STOP_SIGNALS))
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # already exiting
        self.keepers.leave_all()
        if connection:
            connection.close()
        self._save_snapshot()
        return 0

    def _connect(self) -> ClientEntry | None:
        """Count among the connected clients, for whom the hub is started and kept running."""
        from memoryhub.core import autostart
        from memoryhub.core.clients import ClientEntry
        from memoryhub.ops.serving.process import find_running

        try:
            if (running := find_running()) and running.upgrade:
                logger.warning(running.upgrade)
            connection = ClientEntry()
            self.calls.describe_client = connection.describe
            autostart.start_hub()
        except OSError as error:
            logger.warning("the hub can't be started for this client: %s", error)
            return None
        return connection

    def stop_work(self) -> None:
        """End reads, questions and queued calls; a running write continues."""
        self.questions.stop()
        self.workers.stop()

    async def serve(self, handover: Handover, *, signals: Iterable[signal.Signals]) -> None:
        """Serve until the client closes its side, or one of the signals comes to this process."""
        from memoryhub.mcp.pump import Pump

        loop = asyncio.get_running_loop()
        pump = Pump(handover, stop_work=self.stop_work)
        for number in signals:
            loop.add_signal_handler(number, pump.stop)
        pump.start()
        if self.key:
            thread = threading.Thread(target=self._save_snapshot, name="memory-hub-snapshot", daemon=True)
            loop.call_later(_SNAPSHOT_DELAY_SECONDS, thread.start)
        await asyncio.gather(self._run_sdk(pump), pump.close_when_done())
        from memoryhub.mcp.threads import THREAD_END_SECONDS

        self.workers.join(THREAD_END_SECONDS)  # while signals are still handled by the loop

    async def _run_sdk(self, pump: Pump) -> None:
        try:
            await self.server.run(pump.incoming, pump, self.server.create_initialization_options())
        finally:
            pump.stop()

    def _save_snapshot(self) -> None:
        from memoryhub.mcp.pump import record

        with self._recording:
            if snapshot.load(self.profile, self.key) is not None:
                return
            try:
                snapshot.save(self.profile, self.key, record(self.server))
            except OSError as error:
                logger.warning("could not save the snapshot, so the next start will be slower: %s", error)
            except Exception:
                logger.warning("could not save the snapshot; the next start will be slower", exc_info=True)
