"""The matrix notices when a check is taken away: without it, some answer is one that the matrix refuses."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from memoryhub.core.permissions import Act
from memoryhub.core.stores import store
from tests.permissions import hub_page_requests as hub_pages
from tests.permissions import mcp_requests as mcp
from tests.permissions import rest_requests as rest
from tests.permissions.test_matrix import RestMatrix
from tests.permissions.test_matrix_mcp import McpMatrix
from tests.permissions.test_matrix_pages import PageMatrix
from tests.permissions.world import OWN


def _nothing(*_: Any, **__: Any) -> None:
    pass


class RemovedChecksOfRestTests(RestMatrix):
    def test_which_stores_a_caller_sees(self) -> None:
        strangers = [caller for caller in self.callers if caller.at and not caller.acts(OWN)]
        with mock.patch.object(store, "_require_reach", _nothing), self.assertRaises(AssertionError):
            for ask in rest.project_asks(self.world):
                for caller in strangers:
                    self.judge(ask, caller)

    def test_what_a_route_needs(self) -> None:
        members = [caller for caller in self.callers if caller.hub == {Act.VIEW}]
        with mock.patch("memoryhub.rest.auth.demand", _nothing), self.assertRaises(AssertionError):
            for route in rest.OF_HUB:
                for caller in members:
                    self.judge(rest.hub_ask(self.world, route), caller)


class RemovedChecksOfMcpTests(McpMatrix):
    def test_what_an_event_needs(self) -> None:
        readers = [caller for caller in self.callers if caller.acts(OWN) == {Act.VIEW}]
        with mock.patch("memoryhub.core.log.append.demand", _nothing), self.assertRaises(AssertionError):
            for name in mcp.WRITES:
                for caller in readers:
                    self.judge(mcp.write(self.world, name), caller)


class RemovedChecksOfPagesTests(PageMatrix):
    def test_what_a_page_of_the_hub_needs(self) -> None:
        members = [caller for caller in self.callers if caller.hub == {Act.VIEW}]
        with mock.patch("memoryhub.web.hub_pages.require", _nothing), self.assertRaises(AssertionError):
            for caller in members:
                form = hub_pages.form(self.world, "people")
                self.unchanged(partial(self.post, caller, f"/{form.path}", form.fields))
