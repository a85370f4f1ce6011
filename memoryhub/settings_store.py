"""Settings of processes that use only stores, the MCP server and some commands; they start fast."""

from __future__ import annotations

from memoryhub import env
from memoryhub.core.backends.sqlite.driver import install
from memoryhub.core.backends.sqlite.options import connection_settings

install()

HOME = env.home()

INSTALLED_APPS = ["memoryhub", "memoryhub.core", "sessions_app", "memories", "decisions", "governance"]

DATABASES = {
    "default": connection_settings(str(HOME / "hub.db"), create=True),
    "jobs": connection_settings(str(HOME / "jobs.db"), create=True),
}
DATABASE_ROUTERS = ["memoryhub.core.stores.routing.StoreRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

LOGGING_CONFIG = "memoryhub.logs.configure"
# Not empty: Django would leave logging unconfigured, and errors in pages would not be logged
LOGGING = {"version": 1}

TEST_RUNNER = "tests.runner.HubTestRunner"
