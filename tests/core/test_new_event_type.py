"""Two event types declared only here pass through every interface."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

from governance.admin.retention import event_words
from governance.retention.schemas import RetentionPlanRequest
from governance.retention.selectors import plan_retention
from governance.rollback.schemas import RollbackMake, RollbackPlan, RollbackUndo
from governance.rollback.selectors import find_rollback
from governance.rollback.service import preview, roll_back, undo_rollback
from memories.pack import pack_context
from memories.schemas import MemorySearch, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.selectors import search
from memories.services import write_memory
from memoryhub.core import clock, log
from memoryhub.core.errors import Forbidden
from memoryhub.core.events import event_types, rollback
from memoryhub.core.events.event_types import EventGroup, EventType, Retention, Speech, define_event, require_effects
from memoryhub.core.events.rollback import Effect, Step, Values, define_effect, reverses, sets_aside
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.schemas import Payload
from memoryhub.core.tools import find_tool
from memoryhub.mcp.listing import load_tools
from sessions_app.schemas import SessionEnd, SettingsChange
from sessions_app.services import end_session
from sessions_app.services.profile import change_settings
from tests.admin.base import WorkingTestCase, text_of
from tests.api.client import RestTestCase
from tests.support import HubTestCase

BAD = {"actor": "mallory", "session_id": "s-bad", "source": "mcp"}
INVENTED = EventGroup("invented", "Invented things", 15, "invented")


class QuestionAsked(Payload):
    content: str = ""
    to: str = ""


class MemoryStarred(Payload):
    memory_id: int
    starred: bool


def define_invented() -> tuple[EventType[QuestionAsked], EventType[MemoryStarred]]:
    asked = define_event(
        "question.asked",
        QuestionAsked,
        label="Question",
        group=INVENTED,
        retention=Retention.CAPTURED,
        rollback=sets_aside("questions", "Questions asked", order=15),
        changes_stream=False,
        nouns=("question", "questions"),
        is_tallied=True,
        about=lambda payload: f"to {payload['to']}: {payload['content']}",
        from_clients=True,
        speech=Speech.PROMPT,
    )
    starred = define_event(
        "memory.starred",
        MemoryStarred,
        label="Memory starred",
        group=INVENTED,
        retention=Retention.WITH_STREAM,
        rollback=reverses("stars", "Memories starred", order=55, by="star", thing="memory"),
        changes_stream=True,
        act=Act.REVIEW,
    )
    values = Values(read=read_star, write=write_star, thing="memory", default=lambda _memory_id: False)
    define_effect(Effect("star", 85, "star put back", values))
    return asked, starred


def read_star(_position: int, payload: Any) -> dict[int, bool]:
    return {payload["memory_id"]: payload["starred"]}


def write_star(step: Step, _reason: str) -> MemoryStarred:
    return MemoryStarred(memory_id=step.id, starred=step.after)


class InventedTestCase(HubTestCase):
    asked: EventType[QuestionAsked]
    starred: EventType[MemoryStarred]

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(event_types._types))
        rollback.effects()  # imports the product's, which must outlive this test
        self.enterContext(mock.patch.dict(rollback._effects))
        self.asked, self.starred = define_invented()
        require_effects()


class AdminDoorTests(InventedTestCase, WorkingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.start("s-1", "Ask")
        turn = self.turn("s-1", ("question.asked", {"content": "Is it a zebrafish?", "to": "Ada"}))
        self.position = turn.id + 1

    def test_the_log_shows_its_label_and_filters_by_its_group(self) -> None:
        self.write("Another thing")
        page = self.page("core/rawevent/")
        shown = ('title="Question">question.asked<', ">Invented things <", ">Question <")
        self.assertEqual([], [text for text in shown if text not in page])
        for filters, positions in (
            ({"group": "invented"}, [self.position]),
            ({"type": "question.asked"}, [self.position]),
            ({"group": "nothing"}, []),
        ):
            self.assertEqual(positions, self.listed("core/rawevent/", **filters))

    def test_timelines_show_its_label_its_icon_its_line_and_count_it(self) -> None:
        page = self.page(f"sessions_app/session/{self.session}/change/")
        self.assertIn("1 turn 1 question", text_of(page))
        entry = page[page.index(f'id="e{self.position}"') :].partition("</li>")[0]
        shown = ("Question", "to Ada: Is it a zebrafish?")
        self.assertEqual([], [text for text in shown if text not in text_of(entry)])
        self.assertIn("invented", entry)

    def test_replay_shows_it_and_a_rebuild_comes_out_the_same(self) -> None:
        page = self.page("core/rawevent/replay/", position=str(self.position))
        self.assertTrue("to Ada: Is it a zebrafish?" in page, "the replay does not show the question")
        with self.store():
            self.assert_rebuilds()
        self.assertEqual("questions", event_words("question.asked"))  # of pages of retention


class OtherDoorTests(InventedTestCase, RestTestCase):
    def append(self, name: str = "question_asked", *, expect: int = 201) -> Any:
        self.call("POST", "projects/alpha/sessions", {"session_id": "s1"}, expect=201)
        turn = self.call("POST", "projects/alpha/turns/begin", {"session_id": "s1"}, expect=201).data
        payload = {"content": "Is it a zebrafish?", "to": "Ada"}
        event = {"ack_token": turn["ack_token"], "type": name, "payload": payload}
        answer = self.call("POST", "projects/alpha/turns/append", event, expect=expect).data
        return answer.get("position", answer)

    def test_rest_appends_and_reads_it(self) -> None:
        position = self.append()
        events = self.call("GET", "projects/alpha/events?type=question.asked").data["results"]
        self.assertEqual([(position, "question.asked")], [(event["position"], event["event_type"]) for event in events])
        timeline = self.call("GET", f"projects/alpha/timeline?id={position}").data
        self.assertIn("Is it a zebrafish?", str(timeline))

    def test_an_unknown_type_is_answered_with_it_among_the_known(self) -> None:
        self.assertIn("question.asked", self.append("question.askd", expect=422)["known"])

    def test_mcp_reads_it(self) -> None:
        position = self.append()
        load_tools()
        for name, arguments in (("audit_replay", {"type": ["question.asked"]}), ("memory_timeline", {})):
            tool = find_tool(name)
            assert tool
            with self.store():
                text = tool.handler(tool.input.model_validate(arguments)).text
            self.assertRegex(text, rf"#{position} .*question.asked.*zebrafish")

    def test_it_is_found_and_packs_quote_the_question(self) -> None:
        position = self.append()
        with self.store():
            self.assertEqual([position], [hit["id"] for hit in search(command=MemorySearch(query="zebrafish")).results])
            self.assertIn("Is it a zebrafish?", pack_context(command=ContextPackRequest(session_id="s2")).text)

    def test_retention_plans_it_by_a_rule_for_its_type(self) -> None:
        with clock.frozen(clock.now() - timedelta(days=40)):
            self.append()
            with self.store():
                end_session(command=SessionEnd(session_id="s1", summary="done"))
        with self.store():
            rule = {"what": "captured", "event_type": "question.asked", "after_days": 30}
            change_settings(command=SettingsChange(settings={"retention": [rule]}))
            going = plan_retention(command=RetentionPlanRequest()).going
        self.assertEqual(
            [("captured", "question.asked", 1)], [(group.what, group.sub, group.things) for group in going]
        )

    def test_its_caller_needs_the_act_that_it_declares(self) -> None:
        payload = MemoryStarred(memory_id=self.write(), starred=True)
        grant = use_grant(Grant(frozenset({Act.VIEW, Act.WRITE})))
        with self.store(), grant, self.assertRaises(Forbidden), log.transaction():
            log.append(log.prepare(self.starred, payload), stream=f"memory:{payload.memory_id}")


class RollbackTests(InventedTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada", session_id="s-good"))
        self.memory_id = write_memory(command=MemoryWrite(title="Clean", content="Clean, it says.")).id

    def append(self, kind: EventType[Any], payload: Payload, stream: str, **origin: str) -> int:
        with use_origin(**origin), log.transaction():
            return log.append(log.prepare(kind, payload), stream=stream).position

    def star(self, *, starred: bool, **origin: str) -> int:
        payload = MemoryStarred(memory_id=self.memory_id, starred=starred)
        return self.append(self.starred, payload, f"memory:{self.memory_id}", **origin)

    def is_starred(self) -> bool:
        last = RawEvent.objects.filter(event_type="memory.starred").order_by("-position").first()
        return last is not None and '"starred":true' in last.payload_json

    def do(self, **chosen: Any) -> Any:
        selection = {"session_id": "s-bad", **chosen}
        token = preview(command=RollbackPlan(**selection)).confirm_token
        return roll_back(command=RollbackMake(**selection, confirm_token=token))

    def test_quarantine_sets_aside_what_was_created_and_leaves_what_was_changed(self) -> None:
        asked = self.append(self.asked, QuestionAsked(content="Is it?", to="Ada"), "turn:s-bad/t", **BAD)
        self.star(starred=True, **BAD)
        shown = preview(command=RollbackPlan(session_id="s-bad"))
        self.assertEqual(
            [("questions", "Questions asked", "to Ada: Is it?"), ("stars", "Memories starred", "Clean")],
            [(group.name, group.title, group.shown[0].title) for group in shown.trace.direct],
        )
        self.assertEqual(({"quarantine": 1}, [self.memory_id]), (shown.counts, [left.id for left in shown.left]))
        made = self.do()
        self.assertEqual([{"do": "quarantine", "id": asked}], find_rollback(made.id).steps)
        undo_rollback(command=RollbackUndo(id=made.id))
        self.assertEqual({"quarantine": 1}, preview(command=RollbackPlan(session_id="s-bad")).counts)

    def test_undo_puts_the_value_back_and_undoing_that_gives_it_again(self) -> None:
        self.star(starred=True, **BAD)
        made = self.do(action="undo")
        self.assertEqual(({"star": 1}, False), (made.counts, self.is_starred()))
        undone = undo_rollback(command=RollbackUndo(id=made.id))
        self.assertEqual(([], True), (undone.undone_left, self.is_starred()))
        self.assertEqual({"star": 1}, preview(command=RollbackPlan(session_id="s-bad", action="undo")).counts)
        self.assert_rebuilds()

    def test_what_others_set_since_is_left_unless_it_is_chosen(self) -> None:
        self.star(starred=True)
        self.star(starred=False, **BAD)
        later = self.star(starred=False)
        shown = preview(command=RollbackPlan(session_id="s-bad", action="undo"))
        self.assertEqual(({}, [f"changed since by ada at #{later}"]), (shown.counts, [left.why for left in shown.left]))
        self.do(action="undo", include=["changed_since"])
        self.assertTrue(self.is_starred())
