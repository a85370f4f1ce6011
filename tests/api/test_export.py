from __future__ import annotations

import io
import tarfile

from memoryhub.core import log
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.rest.auth import read_token
from memoryhub.transfer.jsonl import Export
from memoryhub.transfer.replaying import replay_export
from tests.api.client import RestTestCase


class ExportTests(RestTestCase):
    def download(self, query: str = "", project: str = "alpha") -> bytes:
        answer = self.client.get(
            f"/api/v1/projects/{project}/export{query}", headers={"Authorization": f"Bearer {self.token}"}
        )
        self.assertTrue(answer.streaming)
        return b"".join(answer)

    def setUp(self) -> None:
        super().setUp()
        self.token = read_token()
        self.write("Use WAL", tags=["storage"])
        self.write("Locks", content="Other text", kind="guideline")

    def test_a_whole_store_is_streamed_and_can_be_imported(self) -> None:
        path = self.home / "export.jsonl"
        path.write_bytes(self.download())
        with self.store("alpha"):
            digests = log.table_digests()
        with self.store("copy"):
            replay_export(Export(path))
            self.assertEqual(log.table_digests(), digests)

    def test_files_are_streamed_as_an_archive(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=markdown"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0001-use-wal.md", "memories/0002-locks.md"])
            entry = archive.extractfile("memories/0001-use-wal.md")
            assert entry
            self.assertIn("# Use WAL\n\nreaders do not wait", entry.read().decode())
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=obsidian&kind=guideline"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0002-locks.md"])

    def test_what_is_refused(self) -> None:
        for query, status in (("?tag=a", 422), ("?form=xml", 422), ("?form=markdown&since=2026", 422)):
            self.call("GET", f"projects/alpha/export{query}", expect=status)
        self.call("GET", "projects/none/export", expect=404)
        _, token = create_token(command=TokenCreate(name="bot", verbs=["write"]), by="ann")
        self.call("GET", "projects/alpha/export", token=token, expect=403)
