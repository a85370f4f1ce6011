"""A single value is changed in the text of a file, and no other byte."""

from __future__ import annotations

import json
import tomllib

from django.test import SimpleTestCase
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryhub.client.setup import json_text
from memoryhub.client.setup import json_text as toml_text
from memoryhub.config.clients import all_clients

ENTRY = {"command": "/a b/memory-hub", "args": ["mcp"]}
KEYS = st.text(max_size=6).filter(lambda key: key != "hub")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)
INDENTS = st.sampled_from([None, 1, 2, 4, "\t"])


class JsonTextTests(SimpleTestCase):
    @settings(max_examples=150, deadline=None)
    @given(DOCUMENTS, st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), INDENTS, st.sampled_from(["\n", "\r\n"]))
    def test_removing_an_added_value_restores_every_byte(self, document, servers, indent, newline):
        document = {**document, "mcp": servers}
        text = json.dumps(document, indent=indent, ensure_ascii=False).replace("\n", newline)
        changed = json_text.put(text, ("mcp", "hub"), ENTRY)
        self.assertEqual(json.loads(changed), {**document, "mcp": {**servers, "hub": ENTRY}})
        self.assertEqual(json_text.take(changed, ("mcp", "hub")), text)

    def test_the_layout_of_others_stays_and_is_followed(self):
        text = '{\n\t"a": [1,2],\n\t"servers" : {\n\t\t"x": {}\n\t}\n}\n'
        wanted = '{\n\t"a": [1,2],\n\t"servers" : {\n\t\t"x": {},\n\t\t"hub": {"b": 1}\n\t}\n}\n'
        self.assertEqual(json_text.put(text, ("servers", "hub"), {"b": 1}), wanted)

    def test_missing_parents_are_created_and_removed_again(self):
        for text in ("{}", '{"a": 1}', '{\n  "a": 1\n}'):
            changed = json_text.put(text, ("hooks", "Stop", 0), {"hooks": [1]})
            self.assertEqual(json.loads(changed)["hooks"], {"Stop": [{"hooks": [1]}]})
            self.assertEqual(json.loads(json_text.take(changed, ("hooks", "Stop", 0))), json.loads(text))

    def test_a_value_is_replaced_in_its_place_and_any_item_taken_out(self):
        text = '{"a": ["x", "y", "z"], "b": 2}'
        self.assertEqual(json_text.put(text, ("a", 1), "new"), '{"a": ["x", "new", "z"], "b": 2}')
        self.assertEqual(json_text.take(text, ("a", 0)), '{"a": ["y", "z"], "b": 2}')
        self.assertEqual(json_text.take(text, ("a",)), '{"b": 2}')


class TomlTextTests(SimpleTestCase):
    TEXT = 'model = "x" # why\n\n[mcp_servers.a]\ncommand = "b"\n\n# about tools\n[tools]\nx = [\n  [1],\n]\n'
    TABLE = ("mcp_servers", "memory-hub")

    def test_removing_an_added_table_restores_every_byte(self):
        for text in ("", self.TEXT, self.TEXT.replace("\n", "\r\n")):
            changed = toml_text.put_table(text, self.TABLE, ENTRY)
            self.assertTrue(changed.startswith(text))
            self.assertEqual(tomllib.loads(changed)["mcp_servers"]["memory-hub"], ENTRY)
            self.assertEqual(toml_text.take_table(changed, self.TABLE), text)

    def test_a_table_in_the_middle_goes_with_its_own_and_leaves_the_next_its_comment(self):
        rest = self.TEXT.partition("\n")[2]
        text = '[mcp_servers."memory-hub"]\ncommand = "c"\n[mcp_servers."memory-hub".env]\nA = "1"\n' + rest
        left = toml_text.take_table(text, self.TABLE)
        self.assertEqual(tomllib.loads(left), tomllib.loads(rest))
        self.assertIn("# about tools\n[tools]", left)

    def test_a_table_is_replaced_in_place(self):
        text = toml_text.put_table(self.TEXT, self.TABLE, ENTRY) + "\n[last]\n"
        entry = {"command": 'quote " and \\', "env": {"HOME_OF": "ü"}}
        changed = toml_text.put_table(text, self.TABLE, entry)
        self.assertEqual(tomllib.loads(changed)["mcp_servers"]["memory-hub"], entry)
        self.assertTrue(changed.startswith(self.TEXT) and changed.endswith("\n[last]\n"))


class HttpTextTests(SimpleTestCase):
    def test_every_client_can_read_its_entry_over_http(self) -> None:
        for client in all_clients().values():
            text = client.http_text("http://hub/mcp", "A_TOKEN")
            if client.http is None:
                self.assertEqual(text, "", client.id)
                continue
            entry = tomllib.loads(text) if text.startswith("[") else json.loads(text)
            for name in (*client.servers, "memory-hub"):
                entry = entry[name]
            self.assertEqual(entry[client.http.url], "http://hub/mcp", client.id)
            wanted = "" if client.http.input else "A_TOKEN"
            self.assertEqual(client.http.variable_of(entry), wanted, client.id)
