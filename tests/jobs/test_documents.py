from __future__ import annotations

import re

from django.test import SimpleTestCase

from memoryhub.core.jobs import defined_jobs
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from tests.web.server import ROOT


class DocumentsTests(SimpleTestCase):
    def test_every_job_is_named_with_its_times_and_what_it_is_run_over_and_no_other(self) -> None:
        text = (ROOT / "docs/reference/jobs.md").read_text()
        written = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
        wanted = {(job.slug, job.every.value, job.over.value, without_capital(job.does)) for job in defined_jobs()}
        self.assertEqual(set(written), wanted)


def without_capital(sentence: str) -> str:
    return (sentence[0].lower() + sentence[1:]).removesuffix(".")
