"""Jobs. Importing this package loads those of the hub and of each app's ``jobs.py``."""

from django.utils.module_loading import autodiscover_modules

from memoryhub.ops.jobs import standard
from memoryhub.ops.jobs.running import BUSY, run_due, run_job
from memoryhub.ops.jobs.schedules import install_schedules, release_held, run_scheduled

autodiscover_modules("jobs")

__all__ = ["BUSY", "install_schedules", "release_held", "run_due", "run_job", "run_scheduled"]
