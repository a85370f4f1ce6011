"""The registry in hub.db: projects, people, members, tokens and sign-in links."""

from __future__ import annotations

from django.db import models

from memoryhub.core.permissions import PERMISSIONS, Act


class StoreCheck(models.Model):
    """The last time a store's chain was walked, and what was found."""

    store = models.CharField(max_length=128, primary_key=True)
    checked_at = models.DateTimeField()
    ok = models.BooleanField()
    events = models.BigIntegerField()
    finding = models.TextField()

    def __str__(self) -> str:
        return f"{self.store}: {self.finding}"


class SignInLink(models.Model):
    """A link that signs its bearer in once; only its hash is kept."""

    token_hash = models.CharField(max_length=64, unique=True)
    username = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"sign-in link of {self.username}"


class HubAccess(models.Model):
    """Has no rows: the permissions that the groups of the roles give are about the hub as a whole."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = [
            (PERMISSIONS[Act.VIEW].partition(".")[2], "Can see every page"),
            (PERMISSIONS[Act.WRITE].partition(".")[2], "Can write, settle and delete softly"),
            (PERMISSIONS[Act.REVIEW].partition(".")[2], "Can accept and reject what is proposed"),
            (PERMISSIONS[Act.GOVERN].partition(".")[2], "Can redact, erase, roll back, and change policies"),
            (PERMISSIONS[Act.ADMINISTER].partition(".")[2], "Can manage people, tokens and jobs"),
        ]

    def __str__(self) -> str:
        return "access to the hub"


class AgentToken(models.Model):
    """A token that lets a program in, to some projects and for some acts, until it expires or is revoked."""

    name = models.CharField(max_length=150, unique=True)
    """Never given twice, because events name who acted by it. Of a person's token: ``ann/laptop``."""
    # No foreign key: MCP processes have no app for people
    person = models.CharField(max_length=150, blank=True)
    """Whose token it is, and whose rights it has at most; "": an agent's."""
    prefix = models.CharField(max_length=16, unique=True)
    """The beginning of its text, which is no secret: by it a person recognises it, and the hub finds it."""
    token_hash = models.CharField(max_length=64)
    projects = models.JSONField(null=True)
    """Ids of the projects that it is for; None: the whole hub, or everything that its person may see."""
    orgs = models.JSONField(default=list)
    """Ids of the organisations that it is for, with their projects, beside ``projects``."""
    verbs = models.JSONField()
    """Of ``read``, ``write`` and ``admin``; each one comes with those before it."""
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    """To the minute."""
    last_used_from = models.CharField(max_length=64, blank=True)
    """The address that it came from."""
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    def __str__(self) -> str:
        return f"token {self.name}"


class Subject(models.TextChoices):
    """What a change of access is about; the name of a member's change is the place."""

    PERSON = "person"
    TOKEN = "token"  # noqa: S105 - a word
    JOB = "job"
    MEMBER = "member"


class Membership(models.Model):
    """The role of a person in a project, or in an organisation and all its projects."""

    # No foreign key: MCP processes have no app for people
    username = models.CharField(max_length=150)
    place = models.CharField(max_length=128, help_text="project:<id> or org:<id>")
    role = models.CharField(max_length=16)
    given_at = models.DateTimeField()
    given_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["username", "place"], name="membership_once")]
        indexes = [models.Index(fields=["place"], name="membership_of_place")]

    def __str__(self) -> str:
        return f"{self.username} is {self.role} of {self.place}"

    @property
    def place_title(self) -> str:
        kind, _, name = self.place.partition(":")
        return f"the {'project' if kind == 'project' else 'organisation'} {name}"


class AccessChange(models.Model):
    """A change of a person, a member, a token or a job's schedule. Rows are only ever added."""

    at = models.DateTimeField()
    by = models.CharField(max_length=150)
    door = models.CharField(max_length=16)
    """``admin``, ``rest``, ``cli``, or ``service``."""
    subject = models.CharField(max_length=16, choices=Subject)
    name = models.CharField(max_length=150)
    what = models.CharField(max_length=500)
    """What was done, in the past tense."""

    class Meta:
        indexes = [models.Index(fields=["subject", "-id"], name="access_change_of")]

    def __str__(self) -> str:
        return f"{self.subject} {self.name} was {self.what}"


class JobResult(models.TextChoices):
    """How a run of a job ended."""

    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class JobRun(models.Model):
    """A finished run of a job over one store. Running jobs are known by the locks that they hold."""

    job = models.CharField(max_length=64)
    store = models.CharField(max_length=128, blank=True, help_text="The store's alias; empty: the hub itself")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    result = models.CharField(max_length=16, choices=JobResult)
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0, help_text="0 where nobody knows how much there is")
    message = models.TextField(blank=True)
    pid = models.BigIntegerField()
    asked_by = models.CharField(max_length=150, help_text="schedule, or who asked for it")
    idle = models.BooleanField(default=False, help_text="Found nothing to do; the next such run takes its row's place")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "store"], condition=models.Q(idle=True), name="job_run_one_idle")
        ]
        indexes = [models.Index(fields=["job", "store", "-started_at"], name="job_run_last")]

    def __str__(self) -> str:
        return f"{self.job} of {self.store or 'the hub'} at {self.started_at:%Y-%m-%d %H:%M:%S}: {self.result}"


class SavedView(models.Model):
    """A person's name for the filters, search and order of a list of a store."""

    # No foreign key: MCP processes have no app for people
    username = models.CharField(max_length=150)
    store = models.CharField(max_length=128, help_text="The store's alias")
    page = models.CharField(max_length=100, help_text="Path of the list below the store's overview")
    name = models.CharField(max_length=60)
    query = models.TextField(help_text="The address's query, without the page number")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["username", "store", "page", "name"], name="saved_view_name")]

    def __str__(self) -> str:
        return f"view {self.name} of {self.page} in {self.store}"
