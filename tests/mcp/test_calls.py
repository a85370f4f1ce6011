from __future__ import annotations

import json
from typing import Any

from memoryhub.core.paging import estimate_tokens
from tests.mcp.client import ENVELOPE, McpTestCase, Server, more_tools


class CallingTools(McpTestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()

    def failure(self, tool: str, **arguments: object) -> str:
        result = self.server.call(tool, **arguments)
        self.assertTrue(result["isError"])
        text = result["content"][0]["text"]
        assert isinstance(text, str)
        return text

    def test_an_answer_is_only_text_by_default(self) -> None:
        result = self.server.call("test_echo", text="hi", times=2)
        self.assertEqual(result, {"content": [{"type": "text", "text": "hi hi"}], "isError": False})

    def test_format_json_gives_the_same_as_data(self) -> None:
        result = self.server.call("test_echo", text="hi", tags=["a"], format="json")
        self.assertEqual(result["structuredContent"], {"text": "hi", "tags": ["a"]})
        self.assertEqual(json.loads(result["content"][0]["text"]), result["structuredContent"])

    def test_aliases_dots_and_other_profiles_tools_can_be_called(self) -> None:
        self.assertEqual(self.server.say("old_echo", text="hi"), "hi")
        self.assertEqual(self.server.say("test.echo", text="hi"), "hi")
        self.assertEqual(self.server.say("old.echo", text="hi"), "hi")
        self.assertIn("conflict", self.failure("test_fail"))

    def test_an_argument_may_have_its_older_name_but_not_both(self) -> None:
        self.assertEqual(self.server.say("old_echo", utterance="hi"), "hi")
        expected = "invalid: test_echo got 'text' twice, once under an older name; send only 'text'"
        self.assertEqual(self.failure("test_echo", text="hi", utterance="ho"), expected)
        self.assertNotIn("utterance", json.dumps(self.server.ask("tools/list")))

    def test_an_unknown_tool_names_the_nearest(self) -> None:
        error = self.server.ask("tools/call", {"name": "test_ecko", "arguments": {}})["error"]
        self.assertEqual(error["code"], -32602)
        self.assertIn("did you mean test_echo", error["message"])
        self.assertEqual(error["data"]["nearest"][0], "test_echo")
        error = self.server.ask("tools/call", {"name": "xyzzy", "arguments": {}})["error"]
        self.assertIn("tools/list", error["message"])

    def test_bad_arguments_name_the_field_and_what_is_accepted(self) -> None:
        for arguments, expected in (
            ({}, "invalid: test_echo: 'text' is required"),
            ({"text": "x", "times": 9}, "invalid: test_echo: 'times' must be at most 5, not 9"),
            ({"text": "x", "times": "many"}, "invalid: test_echo: 'times' must be a whole number, not 'many'"),
            ({"text": "x", "mode": "soft"}, "invalid: test_echo: 'mode' must be one of 'plain' or 'loud', not 'soft'"),
            ({"text": ["x"]}, "invalid: test_echo: 'text' must be a text"),
            ({"text": "x", "tags": ["a", 1]}, "invalid: test_echo: 'tags[1]' must be a text, not 1"),
            ({"times": 0, "mode": ""}, "invalid: test_echo: 'text' is required; also invalid: 'times', 'mode'"),
            ({"text": "x", "format": "xml"}, "invalid: 'format' must be one of 'text', 'json'"),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.failure("test_echo", **arguments), expected)

    def test_an_unknown_argument_is_refused_with_those_that_are_known(self) -> None:
        expected = "invalid: test_echo has no argument 'colour'; it takes: text, times, mode, tags, format"
        self.assertEqual(self.failure("test_echo", text="x", colour="red"), expected)

    def test_an_error_of_the_hub_includes_its_data(self) -> None:
        self.assertEqual(
            self.failure("test_fail"),
            "conflict: there is one already; update it instead\nid: 412\nchoices: alpha, beta",
        )
        result = self.server.call("test_fail", format="json")
        self.assertTrue(result["isError"])
        self.assertEqual(result["structuredContent"]["id"], 412)
        self.assertEqual(result["structuredContent"]["code"], "conflict")
        self.assertIn("id: 412", result["content"][0]["text"])

    def test_an_unexpected_error_is_logged_and_the_server_continues(self) -> None:
        expected = "internal error: ZeroDivisionError; the server's log has the details"
        with self.assertLogs("memoryhub.mcp") as logged:
            result = self.server.call("test_crash")
        self.assertEqual((result["isError"], result["content"][0]["text"]), (True, expected))
        self.assertEqual(self.server.say("test_echo", text="on"), "on")
        self.assertIn("ZeroDivisionError: on purpose", logged.output[0])

    def test_the_caller_is_named_in_the_origin(self) -> None:
        self.assertEqual(self.server.say("test_origin"), "mcp plain client  alpha")
        server = self.start("--project=beta", "--session", "s-9")
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        server.ask("initialize", {**hello, "clientInfo": {"name": "a\nb" + "c" * 200, "version": "1"}})
        self.assertEqual(server.say("test_origin"), f"mcp ab{'c' * 98} s-9 beta")


class BoundToOneProject(McpTestCase):
    def test_naming_the_bound_project_is_allowed_and_another_is_refused(self) -> None:
        server = self.connect("--project", "alpha")
        self.assertEqual(server.say("test_echo", text="hi", project_id="alpha"), "hi")
        refusal = server.call("test_echo", text="hi", project_id="beta")
        self.assertTrue(refusal["isError"])
        self.assertIn("forbidden: this server is bound to project 'alpha'", refusal["content"][0]["text"])

    def test_the_folder_names_the_project_without_an_option(self) -> None:
        folders = [self.home / place / "shop" for place in ("here", "there")]
        for folder in folders:
            folder.mkdir(parents=True)
        self.assertEqual(self.connect(cwd=folders[0]).say("test_origin"), "mcp plain client  shop")
        self.assertEqual(self.connect(cwd=folders[0]).say("test_origin"), "mcp plain client  shop")
        answer = self.connect(cwd=folders[1]).call("test_origin")
        self.assertTrue(answer["isError"])
        self.assertIn("\nchoices: shop, ", answer["content"][0]["text"])

    def test_with_an_ambiguous_project_lists_work_and_calls_fail(self) -> None:
        server = self.connect("--project", "No such slug!")
        self.assertTrue(server.ask("tools/list")["result"]["tools"])
        for _ in range(2):
            answer = server.call("test_echo", text="hi")
            self.assertTrue(answer["isError"])
            self.assertIn("No such slug!", answer["content"][0]["text"])
        error = server.ask("resources/read", {"uri": "test://item/1"})["error"]
        self.assertIn("No such slug!", error["message"])


class Listing(McpTestCase):
    def names(self, profile: str) -> list[str]:
        return [tool["name"] for tool in self.tools(profile)]

    def tools(self, profile: str) -> list[dict[str, Any]]:
        tools = self.connect("--project", "alpha", "--profile", profile).ask("tools/list")["result"]["tools"]
        assert isinstance(tools, list)
        return tools

    def test_each_profile_lists_what_the_one_before_lists_and_more(self) -> None:
        core, work, full = (set(self.names(profile)) for profile in ("core", "work", "full"))
        self.assertIn("test_echo", core)
        self.assertLess(core, work)
        self.assertLess(work, full)
        self.assertNotIn("test_crash", core)
        self.assertNotIn("test_fail", work)

    def test_profiles_stay_within_their_tokens(self) -> None:
        for profile, most_tokens, most_tools in (("core", 1_050, 8), ("full", 7_500, 64)):
            with more_tools(""):
                tools = self.tools(profile)
            tokens = estimate_tokens(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))
            self.assertIn(len(tools), range(1, most_tools + 1), profile)
            self.assertLessEqual(tokens, most_tokens, profile)

    def test_annotations_say_what_a_tool_may_do(self) -> None:
        found = {tool["name"]: tool["annotations"] for tool in self.tools("full")}
        self.assertEqual(found["test_echo"], {"readOnlyHint": True, "openWorldHint": False})
        self.assertEqual(found["test_slow_write"], {"destructiveHint": False, "openWorldHint": False})
        self.assertEqual(found["test_forget"], {"idempotentHint": True, "openWorldHint": False})


class ReadingResources(McpTestCase):
    def test_an_address_is_decoded_and_read(self) -> None:
        server = self.connect()
        contents = server.ask("resources/read", {"uri": "test://item/a%2Fb%20c?b=%C3%BC&a=1"})["result"]["contents"][0]
        self.assertEqual(contents["mimeType"], "application/json")
        self.assertEqual(
            json.loads(contents["text"]), {"parameters": {"id": "a/b c", "a": "1", "b": "ü"}, "store": "alpha"}
        )

    def test_an_unknown_resource_is_an_error_of_the_clients_revision(self) -> None:
        handshake, modern = self.connect(), self.start()
        for uri in ("test://item/404", "other://item/1", "test://item/1/2", "memories://get/999999"):
            with self.subTest(uri=uri):
                error = handshake.ask("resources/read", {"uri": uri})["error"]
                self.assertEqual((error["code"], error["data"]["uri"]), (-32002, uri))
                error = modern.ask("resources/read", {"uri": uri, "_meta": ENVELOPE})["error"]
                self.assertEqual((error["code"], error["data"]["uri"]), (-32602, uri))
