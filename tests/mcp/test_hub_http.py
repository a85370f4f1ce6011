"""MCP of all projects in a hub, at ``/p/<project>/mcp``."""

from __future__ import annotations

import contextlib
import http.client
import json
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.subscriptions import ResourceUpdated

from tests.mcp.client import HANDSHAKE, MODERN, run_async
from tests.mcp.http_server import HttpSession, HubProject, hello
from tests.mcp.hub_case import HubTestCase


class ServingAllProjects(HubTestCase):
    def test_the_sdks_client_works_in_both_eras_and_in_two_projects_at_once(self) -> None:
        for mode in ("legacy", MODERN):
            with self.subTest(mode=mode):
                run_async(self.converse, mode)

    async def converse(self, mode: str) -> None:
        async def agree(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={})

        path = self.folder / mode
        path.touch()
        async with (
            self.alpha.client(mode, elicitation_callback=agree) as first,
            self.beta.client(mode) as second,
        ):
            await first.call_tool("test_shred", {"path": str(path)})
            self.assertFalse(path.exists())
            for client, project in ((first, "alpha"), (second, "beta")):
                written = await client.call_tool("memory_write", {"title": f"{mode} of {project}", "content": project})
                self.assertFalse(written.is_error, written)
            for client, project, other in ((first, "alpha", "beta"), (second, "beta", "alpha")):
                origin = (await client.call_tool("test_origin", {})).content[0]
                assert isinstance(origin, types.TextContent)
                self.assertTrue(origin.text.endswith(f" {project}"), origin.text)
                found = (await client.call_tool("memory_search", {"query": f"{mode} of"})).content[0]
                assert isinstance(found, types.TextContent)
                self.assertIn(f"of {project}", found.text)
                self.assertNotIn(f"of {other}", found.text)

    def test_a_missing_or_wrong_token_is_asked_for_and_no_sign_in_server_is_offered(self) -> None:
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer mh_{'a' * 8}_{'b' * 43}"}):
            with self.alpha.send("POST", hello(), **wrong) as response:
                self.assertEqual((response.status, response.headers["www-authenticate"]), (401, "Bearer"))
                self.assertEqual(json.loads(response.read())["code"], "unauthorized")
        for path in ("/.well-known/oauth-protected-resource/p/alpha/mcp", "/.well-known/oauth-authorization-server"):
            with self.alpha.get(path) as response:
                self.assertEqual((response.status, response.headers["www-authenticate"]), (404, None))
                self.assertEqual(len(response.read().splitlines()), 1)

    def test_a_project_that_a_token_may_not_see_is_as_unknown_as_one_that_is_not_there(self) -> None:
        token = self.token("limited", "admin", "--project", "alpha")
        self.assertEqual(HubProject(self.hub, "alpha", token).status(**self.bearer(token)), 200)
        answers = {
            name: self.refused(HubProject(self.hub, name).send("POST", hello(), **self.bearer(token)))
            for name in ("beta", "nowhere")
        }
        self.assertEqual(answers["beta"], (404, "there is no project 'beta' in this hub; known: alpha"))
        self.assertEqual(answers["nowhere"], (404, answers["beta"][1].replace("beta", "nowhere")))
        self.assertFalse((self.hub.home / "projects" / "nowhere").exists())

    def bearer(self, token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    def test_a_token_that_may_only_read_writes_nothing(self) -> None:
        session = HttpSession(HubProject(self.hub, "alpha", self.token("reader", "read")))
        self.assertNotIn("forbidden", session.say("memory_search", query="anything"))
        self.assertIn("forbidden: this caller may not", session.say("memory_write", title="No", content="no"))

    def test_events_name_the_token_and_the_session_has_no_folder(self) -> None:
        session = HttpSession(HubProject(self.hub, "alpha", self.token("writer")))
        started = json.loads(session.say("session_start", session_id="far", purpose="work", format="json"))
        self.assertEqual(started["directory"], "")
        session.say("memory_write", title="From afar", content="over HTTP")
        events = self.hub.api("GET", "projects/alpha/events?type=memory.written").json()["results"]
        found = [(event["source"], event["actor"]) for event in events if event["session_id"] == "far"]
        self.assertEqual(found, [("mcp", "token:writer")])

    def test_a_revoked_token_is_refused_at_the_next_request(self) -> None:
        session = HttpSession(HubProject(self.hub, "alpha", self.token("gone")))
        self.assertIn("created", session.say("memory_write", title="Before", content="before"))
        self.run_token("revoke", "gone")
        status, sentence = self.refused(session.begin("memory_search", query="Before"))
        self.assertEqual(status, 401)
        self.assertIn("the token 'gone' was revoked", sentence)

    def test_a_body_that_ends_after_its_token_was_revoked_writes_nothing(self) -> None:
        server = HubProject(self.hub, "alpha", self.token("slow"))
        arguments = {"title": "Too late", "content": "sent by a revoked token"}
        with HttpSession(server).partly("memory_write", **arguments) as (connection, last):
            self.run_token("revoke", "slow")
            connection.send(last)
            status, sentence = self.refused(connection.getresponse())
        self.assertEqual(status, 401)
        self.assertIn("the token 'slow' was revoked", sentence)
        results = self.hub.api("GET", "projects/alpha/memories?limit=100").json()["results"]
        self.assertNotIn("Too late", [memory["title"] for memory in results])

    def test_a_session_of_another_token_or_project_is_as_unknown_as_one_that_never_was(self) -> None:
        own = HttpSession(HubProject(self.hub, "alpha", self.token("owner-of-it")))
        session = own._headers["MCP-Session-Id"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        thief = HubProject(self.hub, "alpha", self.token("thief"))

        def attempt(server: HubProject, name: str, authorization: dict[str, str], method: str = "POST") -> Any:
            headers = {**authorization, "MCP-Protocol-Version": HANDSHAKE[-1], "MCP-Session-Id": name}
            return self.refused(server.send(method, call if method == "POST" else None, **headers))

        unknown = (404, "there is no such session; start one with initialize")
        for method in ("POST", "GET", "DELETE"):
            self.assertEqual(attempt(self.alpha, "never", self.alpha.authorization, method), unknown)
            self.assertEqual(attempt(thief, session, thief.authorization, method), unknown)
            self.assertEqual(attempt(self.alpha, session, self.alpha.authorization, method), unknown)
            authorization = {"Authorization": own._headers["Authorization"]}
            self.assertEqual(attempt(self.beta, session, authorization, method), unknown)
        self.assertEqual(own.say("test_echo", text="still here"), "still here")

    def test_another_project_is_refused_with_its_address(self) -> None:
        said = HttpSession(self.alpha).say("memory_search", query="x", project_id="beta")
        self.assertIn("forbidden: this server is bound to project 'alpha'; use the address /p/beta/mcp", said)

    def test_foreign_hosts_and_pages_are_refused(self) -> None:
        known, own = self.alpha.authorization, f"localhost:{self.alpha.port}"
        self.assertEqual(self.alpha.status(**known, Host=own, Origin=f"http://{own}"), 200)
        for host in ("evil.example", f"evil.example:{self.alpha.port}", ""):
            self.assertEqual(self.alpha.status(**known, Host=host), 421, host)
        for origin in ("https://evil.example", "http://localhost:3000", "null", ""):
            self.assertEqual(self.alpha.status(**known, Origin=origin), 403, origin)

    def test_a_body_that_is_too_long_is_refused(self) -> None:
        connection = http.client.HTTPConnection(*self.hub.place)
        with contextlib.closing(connection):
            connection.putrequest("POST", self.alpha.path)
            for name, value in {**self.alpha.authorization, "Transfer-Encoding": "chunked"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(ConnectionError):
                for _ in range(40):
                    connection.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            self.assertEqual(connection.getresponse().status, 413)

    def test_calls_count_in_the_metrics(self) -> None:
        HttpSession(self.beta).say("memory_search", query="anything")
        text = self.hub.api("GET", "metrics").body.decode()
        self.assertIn('memory_hub_retrieval_seconds_count{kind="search",project="beta"}', text)

    def test_clients_that_subscribed_in_either_era_are_notified_of_what_changed(self) -> None:
        session = HttpSession(self.alpha)
        number = session.say("memory_write", title="Followed", content="one").split("#")[1].split()[0]
        run_async(self.subscribe_with_handshake, f"memories://get/{number}", int(number))
        run_async(self.listen, f"memories://get/{number}", int(number))

    async def subscribe_with_handshake(self, uri: str, number: int) -> None:
        changed = anyio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                self.assertEqual(str(message.params.uri), uri)
                changed.set()

        async with self.alpha.client("legacy", message_handler=heard) as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the newest revision has another way
                await client.subscribe_resource(uri)
            with anyio.fail_after(60):
                for version in range(1, 100):  # the stream of notifications may open later than the session
                    await self.update(client, number, version, f"handshake {version}")
                    with anyio.move_on_after(2):
                        await changed.wait()
                        break
            self.assertTrue(changed.is_set())

    async def update(self, client: Any, number: int, version: int, content: str) -> None:
        given = {"id": number, "content": content, "base_version": version}
        updated = await client.call_tool("memory_update", given)
        self.assertFalse(updated.is_error, updated)

    async def listen(self, uri: str, number: int) -> None:
        uris = [f"memories://get/{number + 1_000}", uri]  # the first is unchanged: there is no such memory
        async with self.alpha.client(MODERN) as client, client.listen(resource_subscriptions=uris) as stream:
            self.assertEqual(stream.honored.resource_subscriptions, uris)
            text = (await client.read_resource(uri)).contents[0]
            assert isinstance(text, types.TextResourceContents)
            await client.call_tool("memory_write", {"title": "Beside it", "content": "of no interest"})
            await self.update(client, number, json.loads(text.text)["version"], "listened to")
            with anyio.fail_after(60):
                async for event in stream:
                    self.assertEqual(event, ResourceUpdated(uri))
                    break

    def test_what_cannot_be_followed_is_refused_in_one_sentence(self) -> None:
        session = HttpSession(self.alpha)
        for uri, sentence in {
            "nowhere://x": "not_found: no resource matches 'nowhere://x'",
            "context://pack": "invalid: 'context://pack' can't be followed, because reading it is recorded; "
            "read it when you need it",
        }.items():
            body = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}}
            with session.send("POST", body) as response:
                self.assertIn(sentence, response.read().decode())
