"""Moves, undos and confirmations of one store that get into each other's way: never do two places take its writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.test import tag

from memoryhub.core.errors import Conflict, Locked, Moved, NotFound
from memoryhub.transfer.moving import switching
from memoryhub.transfer.moving.ending import confirm, undo
from memoryhub.transfer.moving.moving import move
from memoryhub.transfer.moving.peer import Peer, Place
from memoryhub.transfer.moving.places import last_way
from tests.transfer.moving_case import ALPHA, FILES, MovingTestCase


class _Interrupted(Exception):
    pass


@contextmanager
def at(step: str, action: Callable[[], object], *, after: bool = False) -> Iterator[None]:
    """Do something once before a step, or after it."""
    waiting = [action]

    def call(peer: Peer, name: str, **arguments: Any) -> Any:
        if name == step and waiting and not after:
            waiting.pop()()
        result = called(peer, name, **arguments)
        if name == step and waiting and after:
            waiting.pop()()
        return result

    called = Peer.call
    with mock.patch.object(Peer, "call", call):
        yield


def interrupt() -> None:
    raise _Interrupted


@tag("attack")
class RacesTests(MovingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("early")
        self.titles = (f"later {number}" for number in itertools.count())

    def interrupted(self, step: str, act: Callable[..., object], source: Place, target: Place) -> None:
        with self.without_lock(), at(step, interrupt), self.assertRaises(_Interrupted):
            act(ALPHA, source, target)

    # A lease can be lost, for example while its process is stopped
    @contextmanager
    def without_lock(self) -> Iterator[None]:
        with mock.patch.object(switching, "lock"):
            yield

    def assert_only(self, place: Place, *others: Place) -> None:
        places = (FILES, self.server, *others)
        taking = [each for each in places if not self.write_at(each, next(self.titles))]
        self.assertEqual(taking, [place])

    def test_two_commands_that_finish_the_same_move_agree(self) -> None:
        self.interrupted("arrive", move, FILES, self.server)
        with self.without_lock(), at("arrive", lambda: move(ALPHA, FILES, self.server)):
            move(ALPHA, FILES, self.server)
        self.assert_only(self.server)

    def test_a_move_does_not_arrive_after_it_was_undone(self) -> None:
        self.interrupted("arrive", move, FILES, self.server)
        with (
            self.without_lock(),
            at("arrive", lambda: undo(ALPHA, FILES, self.server)),
            self.assertRaisesRegex(Conflict, "came back meanwhile"),
        ):
            move(ALPHA, FILES, self.server)
        self.assert_only(FILES)

    def test_a_move_cannot_arrive_once_its_undo_has_lifted_the_fence(self) -> None:
        self.interrupted("arrive", move, FILES, self.server)
        with Peer(FILES) as peer:
            departure = peer.call("where", store="project:alpha")["departure"]

        def arrive() -> None:
            chosen = {name: departure[name] for name in ("epoch", "position", "digest")}
            with Peer(self.server) as peer, self.assertRaises(Conflict):
                peer.call("arrive", store="project:alpha", **chosen)

        with self.without_lock(), at("come_back", arrive, after=True):
            undo(ALPHA, FILES, self.server)
        self.assert_only(FILES)

    def test_an_undo_that_finds_the_store_arrived_brings_it_back(self) -> None:
        self.interrupted("arrive", move, FILES, self.server)
        with self.without_lock(), at("discard_draft", lambda: move(ALPHA, FILES, self.server)):
            undo(ALPHA, FILES, self.server)
        self.assert_only(FILES)

    def test_a_move_does_not_pass_over_an_interrupted_undo(self) -> None:
        move(ALPHA, FILES, self.server)
        self.interrupted("come_back", undo, FILES, self.server)
        with (
            self.without_lock(),
            at("come_back", lambda: move(ALPHA, FILES, self.server)),
            self.assertRaisesRegex(Conflict, "was moved or came back meanwhile"),
        ):
            undo(ALPHA, FILES, self.server)
        self.assert_only(self.server)

    def test_an_interrupted_undo_is_finished_before_another_move(self) -> None:
        move(ALPHA, FILES, self.server)
        self.interrupted("come_back", undo, FILES, self.server)
        move(ALPHA, FILES, self.server)
        self.assert_only(self.server)

    def test_what_was_written_before_an_interrupted_way_back_is_kept(self) -> None:
        move(ALPHA, FILES, self.server)
        self.assertEqual(self.write_at(self.server, "there"), "")
        self.interrupted("arrive", move, self.server, FILES)
        move(ALPHA, FILES, self.server)
        self.assert_only(self.server)
        self.assertEqual(self.read(self.server)["raw_events"][0], 3)

    def test_a_confirmation_does_not_remove_what_has_come_back(self) -> None:
        move(ALPHA, FILES, self.server)
        with (
            self.without_lock(),
            at("remove_kept", lambda: undo(ALPHA, FILES, self.server)),
            self.assertRaisesRegex(Conflict, "came back meanwhile"),
        ):
            confirm(ALPHA, FILES, self.server)
        self.assert_only(FILES)

    def test_an_interrupted_undo_is_finished_from_the_place_that_it_leaves(self) -> None:
        move(ALPHA, FILES, self.server)
        confirm(ALPHA, FILES, self.server)
        move(ALPHA, self.server, FILES)
        self.interrupted("remove_kept", undo, self.server, FILES)
        way = last_way(ALPHA, self.server)
        undo(ALPHA, way.source, way.target)
        self.assert_only(self.server)

    def test_an_interrupted_confirmation_is_finished(self) -> None:
        move(ALPHA, FILES, self.server)
        self.interrupted("settle", confirm, FILES, self.server)
        confirm(ALPHA, FILES, self.server)
        with Peer(self.server) as peer:
            self.assertIsNone(peer.call("where", store="project:alpha")["arrival"])
        with self.assertRaisesRegex(NotFound, "is confirmed already"):
            confirm(ALPHA, FILES, self.server)

    def test_a_store_that_has_moved_does_not_move_to_a_third_place(self) -> None:
        third = Place("", self.enterContext(self.cluster.database()))
        move(ALPHA, FILES, self.server)
        for act in (move, undo):
            with self.assertRaisesRegex(Moved, "has moved to postgresql://127.0.0.1"):
                act(ALPHA, FILES, third)
        self.assert_only(self.server, third)

    def test_one_command_at_a_time_moves_a_store(self) -> None:
        self.interrupted("arrive", move, FILES, self.server)
        refused = []

        def other() -> None:
            for act in (move, undo, confirm):
                with mock.patch.object(switching, "_LOCK_SECONDS", 0.0), self.assertRaises(Locked) as caught:
                    act(ALPHA, FILES, self.server)
                refused.append(caught.exception.message)

        with at("arrive", other):
            move(ALPHA, FILES, self.server)
        self.assertEqual(len(refused), 3)
        self.assertIn("another `memory-hub move` works on project:alpha", refused[0])
        self.assert_only(self.server)
