from __future__ import annotations

import json
from unittest import mock

from memories import services
from memories.models import ContextPack
from memories.pack import pack_context
from memories.pack.service import HELD_OUT
from memories.schemas import MemoryWrite
from memories.schemas.query import ContextPackRequest
from memoryhub.core import log
from memoryhub.core.contributions import opening_of, recall_of
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import project_store, use_store
from sessions_app import held_out
from sessions_app.events import SESSION_STARTED
from sessions_app.hook_parser import parse_hook
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.capture import take_event
from sessions_app.tools.sessions import start
from tests.support import HubTestCase

PROMPT = "On which port does the deployment of the hub listen?"


class HeldOutTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        services.write_memory(command=MemoryWrite(title="Port of the hub", content="The deployment listens on 8321."))
        for number in range(20):
            services.write_memory(command=MemoryWrite(title=f"Filler {number}", content=f"All about topic{number}."))

    def hold_out(self, percent: int) -> None:
        self.enterContext(mock.patch.dict("os.environ", MEMORY_HUB_HELD_OUT_PERCENT=str(percent)))

    def begin(self, name: str) -> bool | None:
        start_session(command=SessionStart(session_id=name))
        started = RawEvent.objects.filter(event_type=SESSION_STARTED.name).latest("position")
        found: bool | None = json.loads(started.payload_json).get("held_out")
        return found

    def hook(self, name: str) -> str:
        data = {"session_id": name, "cwd": str(self.home), "source": "startup"}
        event = parse_hook(client="claude-code", event="SessionStart", data=data)
        return take_event(event=event, client="claude-code", project="alpha", idempotency_key=name)

    def test_no_session_is_held_out_unless_the_project_says_so(self) -> None:
        self.assertIsNone(self.begin("s-0"))
        self.assertIn("8321", opening_of("s-0"))

    def test_a_held_out_session_gets_no_memory_unasked_at_any_door(self) -> None:
        self.hold_out(50)
        drawn = {f"s-{number}": self.begin(f"s-{number}") for number in range(40)}
        self.assertEqual({name: held_out.is_held_out(name) for name in drawn}, drawn)
        out, given = (next(name for name, held in drawn.items() if held is side) for side in (True, False))
        self.assertEqual((opening_of(out), recall_of(out, PROMPT)), (HELD_OUT, ""))
        self.assertEqual((self.hook(out), ContextPack.objects.count()), (HELD_OUT, 0))
        fresh = next(f"t-{number}" for number in range(40) if held_out.assign(f"t-{number}"))
        self.assertEqual(start(SessionStart(session_id=fresh)).data["context"], HELD_OUT)
        self.assertIn("8321", pack_context(command=ContextPackRequest(session_id=out)).text)
        self.assertIn("8321", self.hook(given))

    def test_the_assignment_is_fixed_by_the_name_and_recorded(self) -> None:
        names = [f"s-{number}" for number in range(1_000)]
        shares = {name: held_out.share_of(name) for name in names}
        self.assertAlmostEqual(sum(share < 0.2 for share in shares.values()) / len(names), 0.2, delta=0.05)
        with use_store(project_store("beta"), create=True):
            self.assertNotEqual(held_out.share_of("s-1"), shares["s-1"])
        self.hold_out(50)
        drawn = {name: self.begin(name) for name in names[:20]}
        self.hold_out(0)
        self.assertEqual({name: held_out.is_held_out(name) for name in drawn}, drawn)
        self.assertTrue(log.rebuild().identical)
        self.assertEqual({name: held_out.is_held_out(name) for name in drawn}, drawn)
