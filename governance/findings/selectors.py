"""The findings about the current project: at most one of each kind, and none without evidence."""

from __future__ import annotations

from governance.findings.commands import find_error, find_first_failure
from governance.findings.contradictions import find_contradiction
from governance.findings.corrections import find_corrected_file
from governance.findings.masked import find_masked_secrets
from governance.findings.reading import read_sessions
from governance.findings.schemas import FindingsReport
from memoryhub.core.log.quarantine import outside_quarantine
from sessions_app.models import Commit


def project_findings() -> FindingsReport:
    """Return what the current store shows of its project, each finding with its evidence.

    A kind of finding for which there is too little evidence is left out.
    """
    read = read_sessions()
    findings = [
        find_error(read.sessions),
        find_first_failure(read.sessions),
        find_corrected_file(read.sessions),
        find_contradiction(),
        find_masked_secrets(),
    ]
    return FindingsReport(
        findings=[finding for finding in findings if finding],
        sessions=len(read.sessions),
        commits=outside_quarantine(Commit.objects.all()).count(),
        is_partial=read.is_partial,
    )
