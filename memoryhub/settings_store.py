"""Settings of a process that only works on stores: the MCP server and plain commands. Starts fast, serves no page."""

from __future__ import annotations

from memoryhub import env
from memoryhub.core.sqlite.options import connection_settings
from memoryhub.core.sqlite.driver import install

install()

HOME = env.home()

INSTALLED_APPS = ["memoryhub", "memoryhub.core", "sessions_app", "memories", "decisions"]

DATABASES = {
    "default": connection_settings(str(HOME / "hub.db"), create=True),
    "jobs": connection_settings(str(HOME / "jobs.db"), create=True),
}
DATABASE_ROUTERS = ["memoryhub.core.routing.StoreRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

LOGGING_CONFIG = "memoryhub.logs.configure"
LOGGING: dict[str, object] = {}

TEST_RUNNER = "tests.runner.HubTestRunner"
