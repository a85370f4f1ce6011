"""Every process knows every event type, whatever else it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from django.test import SimpleTestCase

from memoryhub.core.events.event_types import event_types

_NAMES = """
import django, json
django.setup()
from memoryhub.core.events.event_types import event_types
print(json.dumps([known.name for known in event_types()]))
"""


class RegistrationTests(SimpleTestCase):
    def test_a_process_that_only_reads_a_store_knows_all_event_types(self) -> None:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        done = subprocess.run(
            [sys.executable, "-c", _NAMES],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            check=True,
            timeout=60,
        )
        self.assertEqual(sorted(json.loads(done.stdout)), sorted(known.name for known in event_types()))
