"""Write memories to a project until standard input ends, and report each: ``python -m tests.postgres.writer NAME``.

An acknowledged memory is printed by its title, a refusal after ``!``, with the seconds that it took.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import django

PROJECT = "alpha"


def write(name: str, stop: threading.Event) -> None:
    from memories.schemas import MemoryWrite
    from memories.services import write_memory
    from memoryhub.core.errors import HubError
    from memoryhub.core.stores.store import project_store, use_store

    number = 0
    while not stop.is_set():
        number += 1
        title = f"{name}-{number}"
        started = time.monotonic()
        try:
            with use_store(project_store(PROJECT), create=number == 1):
                write_memory(command=MemoryWrite(title=title, content=f"the content of {title}"))
        except HubError as error:
            report(f"! {time.monotonic() - started:.1f} {error.message}")
            stop.wait(0.05)
        else:
            report(title)


def report(line: str) -> None:
    sys.stdout.write(f"{' '.join(line.split())}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    django.setup()
    stopping = threading.Event()
    writing = threading.Thread(target=write, args=[sys.argv[1], stopping])
    writing.start()
    sys.stdin.read()
    stopping.set()
    writing.join()
