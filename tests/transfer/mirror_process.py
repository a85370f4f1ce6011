"""A process that mirrors a folder, edits files meanwhile as a user does, and kills itself at a given call.

Run as ``python -m tests.transfer.mirror_process FOLDER SEED KILL_AT EDIT_AT``; both counts are of calls in the mirror.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.transfer.mirror_user import User

WATCHED = ("memoryhub/transfer/mirror", "memories/services/", "memoryhub/core/log/append", "/pathlib.py")


class Interruption:
    """Counts calls into the watched modules; edits a file at one of them, and ends the process at another."""

    def __init__(self, user: User, kill_at: int, edit_at: int) -> None:
        self.user, self.kill_at, self.edit_at, self.calls = user, kill_at, edit_at, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not any(name in frame.f_code.co_filename for name in WATCHED):
            return
        self.calls += 1
        if self.calls == self.edit_at:
            sys.setprofile(None)
            self.user.act()
            sys.setprofile(self)
        if self.calls == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, seed: int, kill_at: int, edit_at: int) -> None:
    import django

    django.setup()
    from memoryhub.core.origin import use_origin
    from memoryhub.core.stores.store import project_store, use_store
    from memoryhub.transfer.folder import Form
    from memoryhub.transfer.mirror.run import Mirror

    user = User(folder, random.Random(seed), f"m{seed}")
    with use_store(project_store("alpha")), use_origin(source="service", actor="ada"):
        sys.setprofile(Interruption(user, kill_at, edit_at))
        Mirror(folder, Form.MARKDOWN, adopt=True, allow_deletions=True).run()
        sys.setprofile(None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
