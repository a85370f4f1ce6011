"""Downloads of what a list shows."""

from __future__ import annotations

import csv
import json
from io import StringIO

from memoryhub.registry.people import PersonAdd, add_person
from tests.admin.base import AdminTestCase


class ExportTests(AdminTestCase):
    def download(self, path: str, **query: str) -> str:
        answer = self.client.get(self.address(path), query)
        self.assertEqual(answer.status_code, 200)
        self.assertIn('attachment; filename="alpha-', answer["Content-Disposition"])
        return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]

    def test_all_rows_of_the_filtered_list_are_in_each_format(self) -> None:
        for number in range(60):
            self.write(f"Note {number}", f"First line of {number}\nsecond, with “quotes”", tags=["x"])
        self.write("A rule", "Always test.", kind="guideline")
        rows = list(csv.DictReader(StringIO(self.download("memories/memory/export.csv", kind="observation"))))
        self.assertEqual(len(rows), 60)
        self.assertEqual({row["kind"] for row in rows}, {"observation"})
        self.assertIn("second, with “quotes”", rows[0]["content"])
        items = json.loads(self.download("memories/memory/export.json"))
        self.assertEqual((len(items), items[0]["title"]), (61, "A rule"))
        text = self.download("memories/memory/export.md", kind="guideline")
        self.assertRegex(text, r"^## #\d+ A rule\n\n- kind: guideline\n")
        self.assertEqual(json.loads(self.download("memories/tool/export.json")), [])

    def test_no_cell_is_a_formula(self) -> None:
        self.write("=1+1", "@SUM(A1)")
        (row,) = csv.DictReader(StringIO(self.download("memories/memory/export.csv")))
        self.assertEqual((row["title"], row["content"]), ("'=1+1", "'@SUM(A1)"))

    def test_a_search_is_exported_as_it_is_shown(self) -> None:
        self.write("The port is 8321")
        self.write("Another thing")
        found = json.loads(self.download("memories/memory/export.json", q="port"))
        self.assertEqual([item["title"] for item in found], ["The port is 8321"])

    def test_each_list_names_its_formats_and_another_format_is_not_found(self) -> None:
        self.write("A note")
        self.assertIn("/memories/memory/export.csv?kind=observation", self.page("memories/memory/", kind="observation"))
        for path in ("decisions/decision/", "sessions_app/session/", "sessions_app/commit/", "core/rawevent/"):
            self.download(f"{path}export.json")
        self.assertEqual(self.client.get(self.address("memories/memory/export.xls")).status_code, 404)

    def test_a_project_exports_nothing_of_another_and_a_stranger_nothing(self) -> None:
        self.write("Of beta", project="beta")
        self.assertEqual(json.loads(self.download("memories/memory/export.json")), [])
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.download("memories/memory/export.csv")
        self.client.logout()
        self.assertEqual(self.client.get(self.address("memories/memory/export.csv")).status_code, 302)


class ActionTests(AdminTestCase):
    def test_redaction_begins_with_the_item(self) -> None:
        memory = self.write("A note")
        self.assertIn(f"/governance/redaction/?ids={memory}", self.page(f"memories/memory/{memory}/change/"))
        self.assertIn(f"/governance/redaction/?ids={memory}", self.page(f"core/rawevent/{memory}/change/"))
        self.assertRegex(self.page("governance/redaction/", ids=str(memory)), rf'name="ids" value="{memory}"')

    def test_lists_show_the_beginning_of_each_text(self) -> None:
        self.write("A note", "It begins here. " * 40)
        page = self.page("memories/memory/")
        self.assertIn("It begins here.", page)
        self.assertNotIn("It begins here. " * 20, page)
