"""The audit: who was given which pack and who changed how much, from the log, through every interface."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from datetime import timedelta
from typing import Any
from unittest import mock

from django.test import Client, tag

from governance import audit
from governance.audit import AuditExport, AuditPeriod, AuditRequest, export_audit, list_activity, list_packs_read
from memories.pack.service import pack_context
from memories.schemas import MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.services import write_memory
from memoryhub.core import clock, log
from memoryhub.core.permissions import MEMBER_ROLES, Grant, use_grant
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.rest.auth import read_token
from tests.api.client import RestTestCase
from tests.memories.base import pages

READERS = (("ann/laptop", "mcp"), ("ann/desk", "hook"), ("ben/laptop", "mcp"), ("token:ci", "rest"), ("codex", "mcp"))
PERSONS = {"ann/laptop": ("ann", "laptop"), "ann/desk": ("ann", "desk"), "ben/laptop": ("ben", "laptop")}


class AuditTestCase(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.written_by("ada", "service", "Tide")

    def read(self, actor: str, source: str, query: str = "") -> int:
        with self.store(actor=actor, source=source):
            return pack_context(command=ContextPackRequest(query=query)).id

    def written_by(self, actor: str, source: str, title: str) -> None:
        with self.store(actor=actor, source=source):
            write_memory(command=MemoryWrite(title=title, content=f"About {title}."))

    def audited(self, **fields: Any) -> list[dict[str, Any]]:
        with self.store():
            return list_packs_read(command=AuditRequest(**fields)).results


@tag("backend")
class ReadingTests(AuditTestCase):
    def test_each_reader_of_the_same_pack_is_named_once(self) -> None:
        packs = [self.read(actor, source) for actor, source in READERS]
        self.assertEqual([self.read(actor, source) for actor, source in READERS], packs)
        items = {item["position"]: item for item in self.audited()}
        self.assertEqual(len(items), len(READERS))
        for pack, (actor, source) in zip(packs, READERS, strict=True):
            person, client = PERSONS.get(actor, ("", actor))
            item = items[pack]
            self.assertEqual((item["person"], item["client"], item["door"]), (person, client, source))
            self.assertEqual(item["entries"], ["#1"])
            with self.store():
                self.assertEqual(item["digest"], log.digest_at(pack))

    def test_counts_agree_with_what_was_done(self) -> None:
        source = random.Random(7)
        expected: Counter[tuple[str, str, str]] = Counter()
        for number in range(60):
            actor, door = source.choice(READERS)
            if source.random() < 0.5:
                before = len(self.audited(limit=100))
                self.read(actor, door, f"question {number}")
                expected[actor, door, "packs"] += len(self.audited(limit=100)) - before
            else:
                self.written_by(actor, door, f"Fact {number}")
                expected[actor, door, "writes"] += 1
        with self.store():
            activity = {(item.person, item.client, item.door): item for item in list_activity(command=AuditPeriod())}
        for actor, door in READERS:
            item = activity[*PERSONS.get(actor, ("", actor)), door]
            counts = (expected[actor, door, "packs"], expected[actor, door, "writes"])
            self.assertEqual((item.packs, item.writes), counts)

    def test_a_person_is_listed_with_all_their_clients_and_nobody_else(self) -> None:
        others = (("annabel/laptop", "mcp"), ("ann0", "mcp"), ("Ann/laptop", "mcp"))
        for actor, source in (*READERS, ("ann", "admin"), *others):
            self.read(actor, source, f"asked by {actor}")
        clients = [(item["person"], item["client"]) for item in self.audited(person="ann")]
        self.assertEqual(sorted(clients), [("ann", ""), ("ann", "desk"), ("ann", "laptop")])

    def test_a_period_begins_with_its_first_and_ends_before_its_last_moment(self) -> None:
        now = clock.now()
        for hours in range(4):
            with clock.frozen(now + timedelta(hours=hours)):
                self.read("ann/laptop", "mcp", f"question {hours}")
        items = self.audited(since=now + timedelta(hours=1), until=now + timedelta(hours=3))
        self.assertEqual([item["query"] for item in items], ["question 2", "question 1"])

    def test_pages_follow_each_other_and_an_export_is_made_in_steps(self) -> None:
        packs = [self.read("ann/laptop", "mcp", f"question {number}") for number in range(7)]
        with self.store():
            listings = pages(lambda **page: list_packs_read(command=AuditRequest(**page)), limit=2)
            self.assertEqual([item["position"] for page in listings for item in page.results], packs[::-1])
            with mock.patch.object(audit, "_AT_ONCE", 3):
                lines = [json.loads(line) for line in export_audit(command=AuditExport(form="jsonl"))]
        self.assertEqual(lines[0]["client"], "laptop")
        self.assertEqual([line["position"] for line in lines], packs)

    def test_whoever_reads_the_log_reads_the_audit(self) -> None:
        pack = self.read("ann/laptop", "mcp", "tides")
        viewer = Grant(frozenset(), everywhere=False, places={"project:alpha": MEMBER_ROLES["viewer"]})
        with use_grant(viewer), self.store(create=False):
            (item,) = list_packs_read(command=AuditRequest()).results
            self.assertEqual((item["position"], item["person"]), (pack, "ann"))
            self.assertEqual([item.packs for item in list_activity(command=AuditPeriod(person="ann"))], [1])
            self.assertIn('"tides"', next(iter(export_audit(command=AuditExport(form="jsonl")))))


class InterfaceTests(AuditTestCase):
    def test_the_routes(self) -> None:
        self.read("ann/laptop", "mcp", "=cmd()")
        listed = self.call("GET", "projects/alpha/audit").data
        self.assertEqual([item["person"] for item in listed["results"]], ["ann"])
        activity = self.call("GET", "projects/alpha/audit/activity?person=ann").data
        self.assertEqual([(item["client"], item["packs"]) for item in activity], [("laptop", 1)])
        address = "/api/v1/projects/alpha/audit/export?form=csv"
        exported = self.client.get(address, headers={"authorization": f"Bearer {read_token()}"})
        (line,) = csv.DictReader(io.StringIO(exported.getvalue().decode()))
        self.assertEqual((line["person"], line["query"], line["entries"]), ("ann", "'=cmd()", "#1"))
        for query in ("form=xml", "since=yesterday"):
            self.call("GET", f"projects/alpha/audit/export?{query}", expect=422)

    def test_the_page_and_its_download(self) -> None:
        self.read("ann/laptop", "mcp", "tides")
        page = "/p/alpha/admin/audit/"
        for name, role in (("olga", "owner"), ("vic", "viewer")):
            reader = Client(headers={"host": "localhost"})
            reader.force_login(add_person(command=PersonAdd(name=name, role=role)))
            self.assertContains(reader.get(page), "laptop")
            self.assertContains(reader.get(page), f'href="{page}"')
        self.assertNotContains(reader.get(f"{page}?person=ben"), "laptop")
        self.assertEqual(reader.get(f"{page}?since=yesterday").status_code, 422)
        (line,) = [json.loads(text) for text in reader.get(f"{page}?form=jsonl").getvalue().decode().splitlines()]
        self.assertEqual(line["query"], "tides")
