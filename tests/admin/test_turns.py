from __future__ import annotations

from datetime import timedelta

from memoryhub.core import clock, log
from memoryhub.core.models import RawEvent
from sessions_app.schemas import TurnBegin
from sessions_app.services.turns import begin_turn, expire_turns
from tests.admin.base import text_of
from tests.admin.working import WorkingTestCase

TURNS = "sessions_app/turn/"


class TurnTests(WorkingTestCase):
    def strict(self, session: str, name: str) -> int:
        with self.store(actor="strict-agent", source="mcp"):
            return begin_turn(command=TurnBegin(session_id=session, turn_id=name)).turn.id

    def test_the_list_shows_prompt_status_session_and_events(self) -> None:
        self.start("s-1", "Lay the floor")
        turn = self.ask("s-1", "Measure it\nwith care", "and again")
        page = self.page(TURNS)
        for text in ("Measure it", turn.turn_id, "Closed", "Automatic", "Lay the floor", "1 turn"):
            self.assertIn(text, text_of(page))
        self.assertNotIn("with care", page)
        self.assertIn(f'href="{self.address("sessions_app/session/named/s-1/")}"', page)
        self.assertRegex(page, r'class="field-events">2<')

    def test_filters_by_status_recorder_and_session(self) -> None:
        self.start("s-1")
        self.start("s-2")
        closed = self.ask("s-1", "one").id
        opened = self.ask("s-2", "two", ends=False).id
        strict = self.strict("s-2", "by-token")
        self.assertEqual(self.listed(TURNS), [strict, opened, closed])
        self.assertEqual(self.listed(TURNS, status__exact="closed"), [closed])
        self.assertEqual(self.listed(TURNS, keeper="client"), [strict])
        self.assertEqual(self.listed(TURNS, keeper="hub"), [opened, closed])
        self.assertEqual(self.listed(TURNS, session="s-2"), [strict, opened])
        self.assertEqual(self.listed(TURNS, q="by-token"), [strict])

    def test_a_turn_that_timed_out_is_incomplete(self) -> None:
        self.start("s-1")
        turn = self.strict("s-1", "left-alone")
        with clock.frozen(clock.now() + timedelta(days=1)), self.store():
            expire_turns()
        self.assertEqual(self.listed(TURNS, status__exact="incomplete"), [turn])
        page = text_of(self.page(f"{TURNS}{turn}/change/"))
        for text in ("Incomplete", "Timed out", "the client", "Timed out without an event"):
            self.assertIn(text, page)

    def test_the_page_shows_only_its_own_events(self) -> None:
        self.start("s-1", "Lay the floor")
        self.ask("s-1", "Measure it")
        turn = self.turn("s-1", ("message.user", {"content": "Cut it"}), summary="It is cut.")
        page = self.page(f"{TURNS}{turn.id}/change/")
        self.assertIn("<h1>Cut it</h1>", page)
        self.assertIn("It is cut.", page)
        self.assertNotIn("Measure it", page)
        self.assertNotIn("rail-turn", page)
        self.assertNotIn(turn.ack_token_hash or "no hash", page)

    def test_a_turn_without_a_prompt_is_titled_with_its_name(self) -> None:
        self.start("s-1")
        turn = self.turn("s-1", ("note.added", {"content": "no prompt here"}))
        self.assertIn(f"<h1>Turn {turn.turn_id}</h1>", self.page(f"{TURNS}{turn.id}/change/"))
        self.assertIn("No prompt recorded", self.page(TURNS))

    def test_stream_and_history_link_to_the_turn(self) -> None:
        self.start("s/1")
        turn = self.ask("s/1", "Measure it")
        with self.store():
            stream = RawEvent.objects.get(position=turn.id).stream_id
        answer = self.client.get(self.address(f"stream/{stream}/"), follow=True)
        self.assertEqual(answer.redirect_chain[-1][0], self.address(f"{TURNS}{turn.id}/change/"))
        self.assertIn("turn.ended", self.page(f"{TURNS}{turn.id}/history/"))
        answer = self.client.get(self.address("stream/turn:nowhere/nothing/"), follow=True)
        self.assertIn("core/rawevent/?stream=turn", answer.redirect_chain[-1][0])

    def test_an_erased_turn_redirects_to_its_events(self) -> None:
        self.start("s-1")
        turn = self.ask("s-1", "Measure it")
        with self.store():
            stream = RawEvent.objects.get(position=turn.id).stream_id
            log.erase_streams([stream], reason="asked for")
        self.page(f"{TURNS}{turn.id}/change/", status=404)
        answer = self.client.get(self.address(f"stream/{stream}/"), follow=True)
        self.assertIn("core/rawevent/?stream=turn", answer.redirect_chain[-1][0])
        self.assertNotIn("Measure it", self.page("sessions_app/session/1/change/"))

    def test_the_list_makes_as_many_queries_for_many_as_for_few(self) -> None:
        for name in ("s-1", "s-2"):
            self.start(name)
            self.ask(name, "one")
        few = self.queries_of(TURNS)
        for number in range(12):
            self.start(f"other-{number}")
            self.ask(f"other-{number}", f"prompt {number}")
        self.assertLessEqual(self.queries_of(TURNS), few)

    def test_nothing_can_be_changed(self) -> None:
        self.start("s-1")
        turn = self.ask("s-1", "Measure it")
        self.assertEqual(self.client.post(self.address(f"{TURNS}add/")).status_code, 403)
        self.assertEqual(self.client.post(self.address(f"{TURNS}{turn.id}/delete/"), {"post": "yes"}).status_code, 403)

    def test_beta_has_no_such_turn(self) -> None:
        self.start("s-1")
        turn = self.ask("s-1", "Measure it")
        self.page(f"{TURNS}{turn.id}/change/", "beta", status=404)
        self.assertNotIn("Measure it", self.page(TURNS, "beta"))
