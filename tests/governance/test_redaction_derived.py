"""What a redaction leaves of the names that the hub derives from a text: slugs, lower case, plain letters, digests."""

from __future__ import annotations

import json
import tempfile
from hashlib import sha256
from pathlib import Path

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.importing import import_markdown
from memories.models import Memory, Tag
from memories.pack.service import pack_context
from memories.schemas.links import TagCreate
from memories.schemas.query import ContextPackRequest
from memories.services.links import create_tag
from memoryhub.core import log
from memoryhub.core.log.read import last_erasure
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror.scan import MirrorReport
from memoryhub.transfer.mirror.service import Mirror
from tests import tampering
from tests.governance.test_redaction import RedactionTestCase

NAME = "Zoë Quokkaländer"
# As the hub writes it in topic keys, tags, file names and the index of words
FORMS = ("zoë-quokkaländer", "zoë quokkaländer", "zoe-quokkalander", "zoe quokkalander", "quokkaländer", "quokkalander",
         "quokkaland")  # fmt: skip
MAYA = "Maya Quokkaland"
DOCUMENT = f"# {MAYA}\n\nA customer.\n\n# Other\n\nStays.\n"


class DerivedNamesCase(RedactionTestCase):
    selection = {"text": NAME}

    def setUp(self) -> None:
        super().setUp()
        self.documents, self.folder = (Path(self.enterContext(tempfile.TemporaryDirectory())) for _ in range(2))

    def import_document(self, text: str) -> None:
        (self.documents / "people.md").write_text(text)
        import_markdown(directory=self.documents)

    def mirror(self) -> MirrorReport:
        return Mirror(self.folder, FolderForm.MARKDOWN).run()

    def forms_left(self, *forms: str) -> dict[str, list[str]]:
        """Return the files of the home and of the mirror, and the tables, whose content or name has a form."""
        places: dict[str, list[str]] = {}
        files = [path for folder in (self.home, self.folder) for path in folder.rglob("*") if path.is_file()]
        for form in forms:
            needles = {form.encode(), json.dumps(form)[1:-1].encode()}
            for path in files:
                if any(needle in path.read_bytes().lower() for needle in needles) or form in path.name.lower():
                    places.setdefault(form, []).append(path.name)
            if tables := tampering.tables_with(form):
                places.setdefault(form, []).extend(tables)
        return places

    def assert_no_forms(self, *forms: str) -> None:
        self.assertEqual(self.forms_left(*forms), {})

    def topics(self) -> list[str]:
        return sorted(filter(None, Memory.objects.values_list("topic_key", flat=True)))


class EveryPlaceTests(DerivedNamesCase):
    def setUp(self) -> None:
        super().setUp()
        self.import_document(f"# Team\n\n## {NAME}\n\nKeeps the keys.\n\n### Her desk\n\nIn the cellar.\n")
        self.memory_id = self.write(f"Ask {NAME}", "Knows the valve.", tags=[NAME])
        renamed = self.write(f"{NAME} left", "In spring.")
        record_decision(command=DecisionRecord(title=f"Call {NAME} first", chosen="Call", rationale="It is quicker"))
        self.mirror()
        self.update(renamed, title="Someone left")
        self.write("Link", f"See decisions/call-{FORMS[2]}-first.md, or the tag {FORMS[1]}, or {FORMS[3]}.")
        pack_context(command=ContextPackRequest(query="who knows the valve", max_tokens=900))

    def test_no_file_no_name_and_no_table_has_a_form_of_the_name_or_its_digest(self):
        places = {(place.field, place.before) for place in self.preview().places}
        self.assertIn(("tags[0]", "zoë quokkaländer"), places)
        self.assertIn(("topic_key", "import:markdown:people.md#team/zoë-quokkaländer"), places)
        forms = (NAME.lower(), *FORMS)
        self.assertEqual(set(self.forms_left(*forms)), set(forms))
        done = self.redact()
        self.mirror()
        self.assert_no_forms(*forms, *(sha256(form.encode()).hexdigest() for form in (NAME, *FORMS)))
        self.assert_sound()
        where = [kept.where for kept in done.left]
        self.assertTrue(any("of the mirror" in place for place in where), where)

    def test_a_mirror_is_named_until_it_has_run_again_and_renamed_its_files_and_links(self):
        left = " ".join(kept.where for kept in self.redact().left)
        self.assertIn(f"the mirror {self.folder}", left)
        self.assertIn("state of the mirror", left)
        self.mirror()
        names = {path.name for path in self.folder.rglob("*.md")}
        self.assertLessEqual({"call-redacted-removed-first.md", "someone-left.md"}, names)
        self.assertEqual(self.mirror().steps, [])
        self.write("One more", f"About {NAME}.")
        self.assertEqual(self.redact().left, [])

    def test_a_mirror_of_the_version_before_renames_what_was_redacted_then(self):
        self.redact()
        (path,) = (self.home / "mirrors").glob("*.json")
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "format": 1, "erasure": last_erasure()}))
        self.mirror()
        self.assertEqual([path.name for path in self.folder.rglob("*.md") if "quokka" in path.name], [])

    def test_no_digest_of_a_line_of_a_pack_with_the_name_is_left(self):
        packed = RawEvent.objects.get(event_type="context.packed")
        sent = json.loads(packed.payload_json)
        about = [key for key in sent["marks"] if key.endswith(f"#{self.memory_id}")]
        self.assertTrue(about)
        self.redact()
        packed.refresh_from_db()
        after = json.loads(packed.payload_json)
        self.assertNotEqual(after["digest"], sent["digest"])
        self.assertEqual({after["marks"][key] for key in about}, {"0" * 10})
        self.assert_no_forms(sent["digest"], *(sent["marks"][key] for key in about))


class SingleWordTests(DerivedNamesCase):
    def test_a_tag_that_was_created_alone_loses_its_name(self):
        create_tag(command=TagCreate(name=NAME, category="people"))
        self.redact()
        self.assert_no_forms(*FORMS)
        self.assertEqual(Tag.objects.count(), 1)

    def test_a_word_goes_from_keys_and_tags_but_prose_in_another_case_stays_and_is_named(self):
        self.import_document("# Quokka\n\nA customer.\n")
        self.write("Prose", "We saw a quokka.", tags=["quokka"])
        kept = [place.where for place in self.preview(text="Quokka").kept]
        self.assertEqual(kept, ["1 event with it in another case"])
        self.redact(text="Quokka")
        imported = Memory.objects.order_by("id")[0].id
        self.assertEqual(self.topics(), [f"import:markdown:people.md#[REDACTED:removed] {imported}"])
        prose = Memory.objects.get(title="Prose")
        self.assertEqual((prose.content, prose.tags), ("We saw a quokka.", ["[redacted:removed]"]))

    def test_a_short_word_is_matched_as_a_word_only(self):
        self.import_document("# Main\n\nA.\n\n# AI\n\nB.\n")
        self.redact(text="AI")
        self.assertTrue(self.topics()[0].startswith("import:markdown:people.md#[REDACTED:removed] "))
        self.assertIn("import:markdown:people.md#main", self.topics())

    def test_matches_of_a_pattern_have_derived_names_too(self):
        self.import_document(DOCUMENT)
        self.write("About", f"It was {MAYA}.", tags=[MAYA])
        with self.assertRaisesRegex(Exception, "label contains the text"):
            self.preview(text=MAYA, label="maya-quokkaland")
        self.redact(text=None, pattern="Maya [A-Z][a-z]+")
        self.assert_no_forms("maya-quokkaland", "maya quokkaland")

    def test_a_key_from_before_is_matched_though_the_text_is_gone(self):
        self.import_document(f"# {MAYA}\n\nA customer.\n")
        event = RawEvent.objects.get(event_type="memory.written")
        payload = json.loads(event.payload_json)
        log.redact_payloads({event.position: {**payload, "title": "people.md > someone"}}, what="an earlier version")
        self.assertEqual(self.preview(text=MAYA).finds, 1)

    def test_a_key_that_was_cut_within_the_name_loses_its_rest_and_its_digest(self):
        headings = (f"# {'x' * size} {MAYA} and their friends\n\nNotes.\n" for size in range(146, 155))
        self.import_document("\n".join(headings))
        (cut,) = [topic for topic in self.topics() if topic.partition("~")[0].endswith("maya-quok")]
        self.redact(text=MAYA)
        self.assert_no_forms("maya-qu", cut.partition("~")[2])

    def test_a_password_that_is_a_word_is_no_name_elsewhere(self):
        memory = self.write("Main", "Text.", tags=["admin"])
        payload = json.loads(RawEvent.objects.get(position=memory).payload_json or "")
        changed = {**payload, "attributes": {"password": "admin-4711"}, "tags": ["admin-4711", "admin"]}
        log.redact_payloads({memory: changed}, what="an earlier version")
        self.redact(text=None, rules=True)
        self.assertIn("admin", Memory.objects.get().tags)


class ImportAgainTests(DerivedNamesCase):
    selection = {"text": MAYA}

    def setUp(self) -> None:
        super().setUp()
        self.import_document(DOCUMENT)
        (self.key,) = [topic for topic in self.topics() if "maya" in topic]
        self.ids = self.live_ids()

    def live_ids(self) -> list[int]:
        return sorted(Memory.objects.live().values_list("id", flat=True))

    def test_the_document_revises_the_same_memory_and_the_key_does_not_come_back(self):
        self.redact()
        topics = self.topics()
        self.assert_sound()
        self.import_document(DOCUMENT.replace("A customer", "A big customer"))
        self.assertEqual((self.live_ids(), self.topics()), (self.ids, topics))
        self.assert_no_forms("maya-quokkaland")
        self.redact()
        self.import_document(DOCUMENT)
        self.assertEqual(self.live_ids(), self.ids)
        self.assert_no_forms("maya-quokkaland")
        self.assert_sound()

    def test_what_is_remembered_is_no_digest_without_the_key_of_the_home(self):
        self.redact()
        ((remembered, memory_id),) = rows.fetch("SELECT key, value FROM store_meta WHERE key LIKE 'topic:%%'")
        self.assertNotIn(sha256(self.key.encode()).hexdigest()[:12], f"{remembered} {memory_id}")
        self.assertEqual(memory_id, str(Memory.objects.get(topic_key__contains="REDACTED").id))

    def test_a_section_that_vanishes_is_still_deleted(self):
        self.redact()
        self.import_document("# Other\n\nStays.\n")
        self.assertEqual(Memory.objects.live().count(), 1)
