from __future__ import annotations

from unittest import mock

from django.test import SimpleTestCase

from memoryhub.core.errors import Busy, TooMany
from memoryhub.mcp import sessions
from memoryhub.mcp.caller import Admitted


def _caller(actor: str, token: str) -> Admitted:
    return Admitted("alpha", actor, owner=token)


ANN, BEN = _caller("ann/laptop", "mh_1"), _caller("ben/laptop", "mh_2")


class SessionTests(SimpleTestCase):
    def setUp(self) -> None:
        self.sessions = sessions.Sessions()
        self.enterContext(mock.patch.multiple(sessions, MOST_SESSIONS=6, MOST_SESSIONS_OF_A_PERSON=4))

    def begin(self, name: str, caller: Admitted) -> list[tuple[str, str]]:
        ended = self.sessions.make_room(caller)
        self.sessions.begin(name, caller)
        return ended

    def test_all_tokens_of_a_person_share_one_limit(self) -> None:
        for number in range(4):
            self.begin(f"a{number}", _caller(f"ann/client{number}", f"mh_{number}"))
        with self.assertRaisesMessage(TooMany, "4 sessions"):
            self.sessions.make_room(_caller("ann/another", "mh_9"))
        self.begin("b0", BEN)

    def test_the_longest_idle_session_of_who_has_most_gives_room(self) -> None:
        for number in range(4):
            self.begin(f"a{number}", ANN)
        for number in range(2):
            self.begin(f"c{number}", _caller("token:ci", "mh_3"))
        with self.sessions.using("a0", ANN):
            self.assertEqual(self.begin("b0", BEN), [("a1", "alpha")])

    def test_sessions_in_use_are_not_ended(self) -> None:
        names = [f"{letter}{number}" for letter in "abc" for number in range(2)]
        for name in names:
            self.begin(name, _caller(f"{name[0]}/x", name[0]))
        for session in self.sessions._sessions.values():
            session.open = 1
        with self.assertRaises(Busy):
            self.sessions.make_room(BEN)
