"""The wheel: what it contains, and every page of the site served from an installation of it."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from email import message_from_bytes
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit
from zipfile import ZipFile

from django.test import SimpleTestCase, tag

from memoryhub import __version__
from tests.home import UNMEASURED
from tests.web.server import ROOT, Server

LINK = re.compile(r'(?:href|src)="([^"]*)"')
PACKAGES = {"memoryhub", "sessions_app", "memories", "decisions", "governance"}


@tag("process")
class WheelTests(SimpleTestCase):
    """The source distribution is built from the checkout, and the wheel from the source distribution."""

    folder: Path
    wheel: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = Path(tempfile.mkdtemp(prefix="memory-hub-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        build(ROOT, "sdist", cls.folder)
        run("tar", "--extract", "--file", str(next(cls.folder.glob("*.tar.gz"))), cwd=cls.folder)
        build(cls.folder / f"django_memory_hub-{__version__}", "wheel", cls.folder)
        cls.wheel = next(cls.folder.glob("*.whl"))

    def test_it_contains_every_file_of_the_packages_templates_and_docs_and_nothing_else(self):
        listed = run(
            "git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES, "templates", "docs", cwd=ROOT
        )
        files = {name for name in listed.splitlines() if (ROOT / name).is_file()}
        with ZipFile(self.wheel) as wheel:
            packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        self.assertEqual(packed, {re.sub("^(templates|docs)/", r"memoryhub/\1/", name) for name in files})

    def test_its_metadata_names_every_licence_and_contains_their_texts(self):
        with ZipFile(self.wheel) as wheel:
            (info,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
            metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
            texts = {
                name: wheel.read(f"{info}/licenses/{name}").decode() for name in metadata.get_all("License-File", [])
            }
        self.assertEqual(metadata["License-Expression"], "MIT AND Apache-2.0")
        listed = run("git", "ls-files", "*LICENSE*", "*NOTICE*", cwd=ROOT).splitlines()
        self.assertEqual(sorted(texts), [name for name in listed if not name.startswith("benchmarks/data/")])
        self.assertIn("Apache License", texts["memories/embeddings/data/LICENSE-APACHE-2.0.txt"])

    def test_every_page_of_an_installation_can_be_opened(self):
        python, home = self.install(), self.folder / "home"
        unrelated = {
            name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_HUB", "DJANGO", "PYTHON"))
        }
        environment = {**unrelated, **UNMEASURED, "MEMORY_HUB_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        where = run(str(python), "-c", "import memoryhub; print(memoryhub.__file__)", cwd=home.parent, env=environment)
        self.assertTrue(where.startswith(str(self.folder)), where)
        for script in ("memory-hub", "django-memory-hub"):
            printed = run(str(python.with_name(script)), "--version", cwd=home.parent, env=environment)
            self.assertEqual(printed, f"{__version__}\n")
        hub = str(python.with_name("memory-hub"))
        self.assertIn("/p/demo/admin/", run(hub, "demo", cwd=home.parent, env=environment))
        command, pipe = [hub, "serve", "--port", "0"], subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=home.parent, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        server = Server(home, process=process)
        self.addCleanup(server.close)
        answers = crawl(server.wait_until_ready())
        self.assertEqual({address: status for address, status in answers.items() if status != 200}, {})
        self.assertGreater(len(answers), 400)
        self.assertEqual([address for address in answers if "login" in address], [])
        for path in ("/", "/p/demo/admin/", "/p/demo/admin/memories/memory/", "/static/memoryhub/hub.css"):
            self.assertIn(path, answers)

    def install(self) -> Path:
        """Install the wheel into a new environment that has the dependencies of this one; return its interpreter."""
        home = self.folder / "environment"
        venv.create(home)
        python = home / "bin" / "python"
        run(*f"{sys.executable} -m pip --python {python} install --quiet --no-deps --no-index {self.wheel}".split())
        # A folder named in a .pth file has its own .pth files ignored, so the checkout is not on the path.
        packages = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        dependencies = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        Path(packages.strip(), "dependencies.pth").write_text("\n".join(dependencies))
        return python


def build(source: Path, target: str, folder: Path) -> None:
    run(*f"{sys.executable} -m hatchling build --target {target} --directory {folder}".split(), cwd=source)


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def crawl(server: Server) -> dict[str, int]:
    """Follow all links from the start page with a signed-in client; return the status of each address.

    Every path is opened. Of addresses that differ only in the values of their query, or in numbers of the path before
    a query, one is opened; of those that combine several filters none is.
    """
    signed_in = server.request("GET", urlsplit(server.link).path)
    cookies = "; ".join(cookie.partition(";")[0] for cookie in signed_in.headers.get_all("Set-Cookie", []))
    answers: dict[str, int] = {}
    shapes: set[str] = set()
    waiting = ["/", "/api/v1/docs"]
    while waiting:
        address = waiting.pop()
        if shape(address) in shapes:
            continue
        shapes.add(shape(address))
        reply = server.request("GET", address, Cookie=cookies)
        links = [reply.headers["Location"]] if reply.status in (301, 302) else []
        if "text/html" in reply.headers.get("Content-Type", ""):
            links = LINK.findall(reply.body.decode())
        answers[address] = 200 if reply.status in (301, 302) else reply.status
        waiting += filter(is_page, (urljoin(address, html.unescape(link)).partition("#")[0] for link in links))
    return answers


def is_page(address: str) -> bool:
    parts = urlsplit(address)
    return not parts.netloc and not parts.scheme and len(parse_qs(parts.query, keep_blank_values=True)) <= 1


def shape(address: str) -> str:
    parts = urlsplit(address)
    return f"{re.sub('[0-9]+', '0', parts.path)}?{parts.query.partition('=')[0]}" if parts.query else parts.path
