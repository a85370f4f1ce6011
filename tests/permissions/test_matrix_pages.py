"""Every page and every form of a place and of the hub by every person."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from memoryhub.core.permissions import Act
from tests.permissions import hub_page_requests as hub_pages
from tests.permissions import page_requests as pages
from tests.permissions.callers import Caller, nobodies
from tests.permissions.matrix import MatrixTestCase, Reply
from tests.permissions.page_requests import Form
from tests.permissions.world import GLOBAL, NOWHERE, OWN, OWN_ORG, PLACES


class PageMatrix(MatrixTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.callers = [*(caller for caller in cls.callers if caller.is_person), nobodies()[0]]

    def get(self, caller: Caller, address: str) -> Reply:
        return Reply.of(caller.client.get(address))

    def post(self, caller: Caller, address: str, fields: dict[str, Any]) -> Reply:
        return Reply.of(caller.client.post(address, fields))

    def listed(self, path: str, caller: Caller) -> str:
        """Return the names of places that a page may have: those who manage people see which places there are."""
        is_of_people = path.startswith(("people", "tokens")) and Act.ADMINISTER in caller.hub
        return " ".join(PLACES) if is_of_people else ""

    def assert_hidden(self, caller: Caller, address: str, name: str, send: Callable[[str], Reply]) -> None:
        """Check that a page of a place that the caller may not see is as that of one that does not exist."""
        nowhere = NOWHERE[name]
        reply, elsewhere = self.unchanged(lambda: send(address), lambda: send(address.replace(name, nowhere)))
        self.assertIn(reply.status, (200, 404) if address.endswith("/login/") else (302, 404), reply.text[:300])
        self.assert_keeps(reply, caller, asked=address)
        self.assertEqual(reply.without(name), elsewhere.without(nowhere))


class PageReadMatrix(PageMatrix):
    def test_the_pages_of_a_project(self) -> None:
        self.look_at(OWN, f"/p/{OWN}/")

    def test_the_pages_of_an_organisation(self) -> None:
        self.look_at(OWN_ORG, f"/o/{OWN_ORG}/")

    def look_at(self, name: str, before: str) -> None:
        shown = set()
        for page, path in pages.store_paths(self.world):
            for caller in self.callers:
                with self.subTest(request=path, caller=caller.name):
                    if caller.acts(name):
                        reply = self.get(caller, f"{before}{path}")
                        self.assertLess(reply.status, 500, reply.text[:600])
                        self.assert_keeps(reply, caller)
                        shown |= {page} if reply.status == 200 else set()
                    else:
                        send = partial(self.get, caller)
                        self.assert_hidden(caller, f"{before}{path}", name, send)
        self.assertGreater(len(shown), 40)

    def test_the_pages_of_the_global_scope(self) -> None:
        for _, path in pages.store_paths(self.world):
            for caller in self.callers:
                if not caller.acts(GLOBAL):
                    with self.subTest(request=path, caller=caller.name):
                        [reply] = self.unchanged(partial(self.get, caller, f"/global/{path}"))
                        self.assertIn(reply.status, (200, 404) if path.endswith("login/") else (302, 403, 404))
                        self.assert_keeps(reply, caller, asked=f"/global/{path} {GLOBAL}")

    def test_the_pages_of_the_hub(self) -> None:
        for path in hub_pages.READS:
            for caller in self.callers:
                with self.subTest(request=path, caller=caller.name):
                    reply = self.get(caller, f"/{path}")
                    self.assertIn(reply.status, (200, 302, 403), reply.text[:300])
                    self.assert_keeps(reply, caller, asked=self.listed(path, caller))
                    self.assertFalse(
                        "/global/" in reply.text and not caller.acts(GLOBAL), "it links to the global scope"
                    )


class PageWriteMatrix(PageMatrix):
    def test_the_forms_of_a_project(self) -> None:
        for name in pages.FORMS:
            self.judge(partial(pages.form, self.world, name), OWN, f"/p/{OWN}/")

    def test_the_forms_of_an_organisation(self) -> None:
        with mock.patch.object(self.world, "scope", "org"):
            for name in pages.OF_ORGANISATIONS:
                self.judge(partial(pages.form, self.world, name), OWN_ORG, f"/o/{OWN_ORG}/")

    def test_the_forms_of_the_global_scope(self) -> None:
        with mock.patch.object(self.world, "scope", "global"):
            for name in pages.IN_WIDER_SCOPES:
                self.judge(partial(pages.form, self.world, name), GLOBAL, "/global/")

    def test_the_forms_of_the_hub(self) -> None:
        for name in hub_pages.FORMS:
            self.judge(partial(hub_pages.form, self.world, name), "", "/")

    def test_those_who_manage_people_make_no_token_that_reads_more_than_they_do(self) -> None:
        caller = next(caller for caller in self.callers if caller.name == "administrator")
        for reach in ({"reach": "hub"}, {"reach": "some", "projects": [OWN]}, {"reach": "some", "orgs": [OWN_ORG]}):
            with self.subTest(reach=reach):
                self.unchanged(partial(self.post, caller, "/tokens", {**hub_pages.TOKEN, **reach, "name": "a"}))

    def judge(self, make: Callable[[], Form], place: str, before: str) -> None:
        form = make()
        may = [caller for caller in self.callers if form.act in caller.acts(place)]
        for caller in [caller for caller in self.callers if caller not in may]:
            with self.subTest(request=form.name, caller=caller.name):
                address = f"{before}{form.path}"
                if place in NOWHERE and not caller.acts(place):
                    send = partial(self.post, caller, fields=form.fields)
                    self.assert_hidden(caller, address, place, send)
                    continue
                [reply] = self.unchanged(partial(self.post, caller, address, form.fields))
                self.assertIn(reply.status, (200, 302, 403, 404), reply.text[:300])
                self.assert_keeps(reply, caller, asked=f"{address} {self.listed(form.path, caller)}")
        for number, caller in enumerate(may):
            with self.subTest(request=form.name, caller=caller.name):
                mine = make() if number else form
                state = self.folder.state()
                reply = self.post(caller, f"{before}{mine.path}", mine.fields)
                self.assertIn(reply.status, (200, 302), reply.text[:600])
                self.assertNotEqual(self.folder.state(), state, f"the form changed nothing: {_main_text(reply)}")


def _main_text(reply: Reply) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2]).split())[:300]
