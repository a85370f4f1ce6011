import base64
import hashlib
import json
from typing import Any
from unittest import TestCase

from memoryhub.core.secrets.sanitize import Finding, sanitize, sanitize_text

BODY = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3kL5mN7"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

TOKENS = {
    "github-token": f"ghp_{BODY[:36]}",
    "gitlab-token": f"glpat-{BODY[:20]}",
    "slack-token": "xoxb-" + "2345678901-2345678901234-" + BODY[:24],
    "stripe-key": f"sk_live_{BODY[:24]}",
    "openai-key": f"sk-proj-{BODY[:48]}",
    "anthropic-key": f"sk-ant-api03-{BODY[:48]}",
    "google-api-key": f"AIza{BODY[:35]}",
    "google-oauth-secret": f"GOCSPX-{BODY[:28]}",
    "pypi-token": f"pypi-AgEIcHlwaS5vcmc{BODY}",
    "npm-token": f"npm_{BODY[:36]}",
    "sendgrid-key": f"SG.{BODY[:22]}.{BODY[:43]}",
    "digitalocean-token": f"dop_v1_{HEX}",
    "huggingface-token": f"hf_{BODY[:34]}",
    "hashicorp-vault-token": f"hvs.{BODY[:30]}",
    "aws-access-key-id": "AKIA" + "Q3EGRIU7XVCNMW2A",
    "age-secret-key": "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "QPZRY9X8GF2TVDW0S3JN54KHCE",
    "telegram-token": "123456789:AAH" + BODY[:32],
    "twilio-key": "SK" + HEX[:32],
    "discord-token": "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "mailchimp-key": HEX[:32] + "-us12",
}
SURROUNDINGS = (
    "{}",
    "It is {}.",
    "({})",
    "use {}, then",
    "'{}'",
    '"{}"',
    '\\"{}\\"',
    "a\\n{}\\nb",
    "`{}`",
    "<{}>",
    "key={}",
    "{};",
    "\n{}\n",
    '{{"a": "x\\n{}"}}',
    "%20{}",
    "[{}]",
)


class TokensWithAKnownPrefixTest(TestCase):
    def test_each_is_masked_with_its_type_in_prose_and_in_code(self) -> None:
        for kind, token in TOKENS.items():
            for surrounding in SURROUNDINGS:
                with self.subTest(kind=kind, surrounding=surrounding):
                    clean, findings = sanitize_text(surrounding.format(token))
                    self.assertNotIn(token[-16:], clean)
                    self.assertIn(f"[REDACTED:{kind}]", clean)
                    self.assertEqual([finding.type for finding in findings], [kind])

    def test_every_github_prefix_is_known(self) -> None:
        for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"):
            self.assertEqual(sanitize_text(prefix + BODY[:36])[0], "[REDACTED:github-token]")

    def test_two_tokens_side_by_side_are_both_masked(self) -> None:
        clean, findings = sanitize_text(f"ghp_{BODY[:36]}|glpat-{BODY[:20]}")
        self.assertEqual(clean, "[REDACTED:github-token]|[REDACTED:gitlab-token]")
        self.assertEqual(len(findings), 2)

    def test_the_rest_of_the_text_is_kept_to_the_letter(self) -> None:
        clean, [finding] = sanitize_text(f"Ünï “x” {TOKENS['npm-token']} — 漢字\r\n\t.")
        self.assertEqual(clean, "Ünï “x” [REDACTED:npm-token] — 漢字\r\n\t.")
        self.assertEqual(finding, Finding("npm-token", "npm-token", 8, 48))


class StructuredSecretsTest(TestCase):
    def test_the_password_of_any_url_is_masked_and_the_rest_is_kept(self) -> None:
        for scheme in ("postgres", "postgresql+psycopg", "mysql", "mongodb+srv", "redis", "amqps", "https", "ftp"):
            clean, findings = sanitize_text(f"see {scheme}://ann:s3cr@t:x@db.host:5432/app?x=1.")
            self.assertEqual(clean, f"see {scheme}://ann:[REDACTED:url-password]@db.host:5432/app?x=1.")
            self.assertEqual(findings[0].type, "url-password")

    def test_even_a_plain_word_is_a_password_in_a_url(self) -> None:
        self.assertEqual(sanitize_text("postgres://user:pass@host")[0], "postgres://user:[REDACTED:url-password]@host")
        self.assertEqual(sanitize_text("redis://:pass@host")[0], "redis://:[REDACTED:url-password]@host")

    def test_a_url_in_escaped_json_is_masked(self) -> None:
        text = json.dumps(json.dumps({"dsn": "postgres://ann:hunter2@db/x"}))
        self.assertNotIn("hunter2", sanitize_text(text)[0])
        self.assertNotIn("hunter2", sanitize_text(text.replace("/", "\\/"))[0])

    def test_a_url_without_a_password_is_left_alone(self) -> None:
        for url in ("https://host:8080/a@b", "ssh://git@host/x", "https://${USER}:${PASS}@host", "http://a:<p>@host"):
            self.assertEqual(sanitize_text(url), (url, []))

    def test_an_aws_secret_key_is_known_by_its_context(self) -> None:
        secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzK3pQ9tLmN"
        for text in (
            "aws_secret_access_key = {}",
            'AWS_SECRET_ACCESS_KEY="{}"',
            "The AWS secret is {}.",
            '{{"SecretAccessKey": "{}"}}',
            '\\"aws_secret\\": \\"{}\\"',
        ):
            self.assertNotIn(secret, sanitize_text(text.format(secret))[0], text)

    def test_a_private_key_is_masked_whole_also_when_cut_short(self) -> None:
        lines = "\n".join([BODY + BODY[:10]] * 8)
        for kind in ("", "RSA ", "OPENSSH ", "EC ", "ENCRYPTED "):
            head, tail = f"-----BEGIN {kind}PRIVATE KEY-----", f"-----END {kind}PRIVATE KEY-----"
            whole = f"before\n{head}\n{lines}\n{tail}\nafter"
            self.assertEqual(sanitize_text(whole)[0], "before\n[REDACTED:private-key]\nafter")
            cut = sanitize_text(f"before\n{head}\n{lines}\n\nThis was cut.")[0]
            self.assertNotIn(BODY[:20], cut)
            self.assertTrue(cut.endswith("This was cut."))
            escaped = json.dumps({"key": f"{head}\n{lines}\n{tail}\n"})
            self.assertNotIn(BODY[:20], sanitize_text(escaped)[0])
            self.assertNotIn(BODY[:20], sanitize_text(json.dumps(escaped))[0])

    def test_http_headers_are_masked(self) -> None:
        basic = base64.b64encode(b"ann:hunter2").decode()
        for text, secret in (
            (f"Authorization: Bearer {BODY[:32]}", BODY[:32]),
            (f'curl -H "Authorization: Basic {basic}" https://x', basic),
            (f"Authorization: token {BODY[:32]}", BODY[:32]),
            ("curl -u ann:hunter2x https://x", "hunter2x"),
        ):
            self.assertNotIn(secret, sanitize_text(text)[0], text)

    def test_webhooks_and_connection_strings_are_masked(self) -> None:
        for text, secret in (
            ("https://hooks.slack.com/services/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", "qKirRWalryBG"),
            (f"https://discord.com/api/webhooks/123456789012345678/{BODY}{BODY[:14]}", BODY),
            (f"AccountName=a;AccountKey={base64.b64encode(bytes(range(64))).decode()};X=y", "AAECAwQF"),
            ("Server=db;User=sa;Password=hunter2x!;", "hunter2x!"),
        ):
            self.assertNotIn(secret, sanitize_text(text)[0], text)


class AssignedSecretsTest(TestCase):
    SECRET = "q9Zt4vB7nK2mX8wL"

    def test_every_way_to_write_an_assignment_is_read(self) -> None:
        for form in (
            "password={}",
            "DB_PASSWORD={}",
            "export API_KEY='{}'",
            "api-key: {}",
            'apiKey: "{}",',
            '"secret": "{}"',
            '{{\\"token\\": \\"{}\\"}}',
            '{{\\\\\\"token\\\\\\": \\\\\\"{}\\\\\\"}}',
            'token := "{}"',
            '"x_token" => "{}"',
            'String token = "{}";',
            'setProperty("X_TOKEN", "{}")',
            "<apiToken>\n  {}\n</apiToken>",
            "password is {}.",
            "the token ({}) token={})",
            "?access_token={}&x=1",
            "passwd: {}",
            "client_secret\t=\t`{}`",
            "--password {}",
            "_authToken={}",
            "auth_token ?= {}",
        ):
            clean, findings = sanitize_text(form.replace("({}) ", "").format(self.SECRET))
            self.assertNotIn(self.SECRET, clean, form)
            self.assertEqual(findings[0].type, "secret", form)

    def test_other_text_is_left_alone(self) -> None:
        for text in (
            "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
            f"sha256: {HEX}",
            f"digest = '{HEX}'",
            "id: 52acf265-3fc6-4ecd-804a-15940bd04653",
            '"integrity": "sha512-' + BODY + BODY + '=="',
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
            "password: <token>",
            "password = xxxxxxxxxxxx",
            "token=${TOKEN}",
            "token: $TOKEN_2",
            "api_key = 'your-api-key-1'",
            "password: changeme",
            "password = get_password(1)",
            "password = os.environ['DB_PASSWORD_1']",
            "password = settings.db.password1",
            "token: [REDACTED:secret]",
            "secret = example-secret-1",
            "tokens = 4096",
            "token_count: 12345678",
            "max_tokens=1024",
            "def test_password(self): pass",
            "the password must have at least 8 characters",
            "secret: ******",
            "from auth import Ed25519PrivateKey",
            '("auth", "0004_alter_user_username_opts")',
            "password_hash = 'pbkdf2'",
            "Bearer authentication",
            "Basic knowledge of things",
            "{{ password }}",
            "token: null",
            "secretary = Smith1990",
            "tokenizer: cl100k_base",
            "a_key, b_key = 12, 13",
            "foo.token, bar.token2",
        ):
            with self.subTest(text=text):
                self.assertEqual(sanitize_text(text), (text, []))

    def test_a_value_is_judged_by_the_key_that_holds_it(self) -> None:
        clean, [finding] = sanitize({"db": {"password": "hunter2x"}, "title": "hunter2x"})
        self.assertEqual(clean, {"db": {"password": "[REDACTED:secret]"}, "title": "hunter2x"})
        self.assertEqual(finding.rule, "named-secret")


class DigestsAndUuidsTest(TestCase):
    SIZES = (32, 40, 56, 64, 96, 128)
    UUID = "4b1d0c1e-8f3a-4b6d-9a27-5c1f0e9d7b42"
    PLAIN = (
        "{}",
        "commit {}",
        "({})",
        "`{}`",
        "a/{}/b.json",
        "image@sha256:{}",
        "sha256-{}",
        "digest={}",
        "{}  file.tar.gz",
        "fixed in {}.",
        "line\\n{}\\n",
        "%20{}",
        "\\u00a0{}",
        "datadog: {}",
        "cloudflare commit: {}",
        "secret scanning found it in commit {}",
        '{{"id": "{}"}}',
    )
    NAMED = (
        "password={}",
        "api_key: {}",
        "the token is {}",
        "ALGOLIA_API_KEY={}",
        'datadog_api_key = "{}"',
        "cloudflare-token: {}",
        "Authorization: Bearer {}",
        "https://ann:{}@example.org",
    )

    def values(self) -> list[str]:
        rest = hashlib.sha512(b"one").hexdigest() + hashlib.sha512(b"two").hexdigest()
        digests = [("4b1d" + rest)[:size] for size in self.SIZES]
        return [*digests, *map(str.upper, digests), self.UUID, self.UUID.upper()]

    def test_alone_and_in_every_context_they_stay(self) -> None:
        for form in self.PLAIN:
            for value in self.values():
                with self.subTest(form=form, value=value):
                    self.assertEqual(sanitize_text(form.format(value)), (form.format(value), []))

    def test_under_a_name_that_says_so_they_are_masked(self) -> None:
        digest = ("4b1d" + hashlib.sha256(b"one").hexdigest())[:32]
        for form in self.NAMED:
            with self.subTest(form=form):
                self.assertNotIn(digest, sanitize_text(form.format(digest))[0])
        self.assertNotIn(digest, json.dumps(sanitize({"password": digest})[0]))

    def test_what_is_longer_or_part_of_a_word_is_judged_as_before(self) -> None:
        digest = "4b1d" + hashlib.sha256(b"one").hexdigest()[4:]
        for text in (digest[:42], f"{digest}xyz", f"{digest[:31]}X{digest[32:]}", f"{digest}_1"):
            with self.subTest(text=text):
                self.assertNotIn(digest[:28], sanitize_text(text)[0])


class PrivateBlocksTest(TestCase):
    def test_a_block_is_taken_out_whole(self) -> None:
        for text, kept in (
            ("a <private>x</private> b", "a  b"),
            ("a<PRIVATE>x\ny</Private >b", "ab"),
            ("a<private why='x'>x</private>b", "ab"),
            ("a< private >x</ private>b", "ab"),
            ("a<private>x<private>y</private>z</private>b", "ab"),
            ("a<private>x", "a"),
            ("a</private>b", "ab"),
            ("<private>a</private>b<private>c</private>", "b"),
            ("a<private/>b", "ab"),
            ("a<private>x</private>b<private>y", "ab"),
        ):
            self.assertEqual(sanitize_text(text)[0], kept, text)

    def test_other_tags_are_left_alone(self) -> None:
        for text in (
            "<privateer>x</privateer>",
            "<private-key>",
            "private > public < x",
            "a < private b",
            "<p>private</p>",
        ):
            self.assertEqual(sanitize_text(text), (text, []))

    def test_taking_out_a_block_never_makes_a_new_tag(self) -> None:
        self.assertEqual(sanitize_text("a<pri<private>x</private>vate>secret</private>b")[0], "ab")
        self.assertEqual(sanitize_text("a<pri</private>vate>secret")[0], "a")

    def test_a_secret_that_only_meets_when_a_block_is_out_is_masked(self) -> None:
        clean, findings = sanitize_text(f"ghp_{BODY[:20]}<private>x</private>{BODY[20:36]}!")
        self.assertEqual(clean, "[REDACTED:github-token]!")
        self.assertEqual({finding.type for finding in findings}, {"private", "github-token"})

    def test_findings_name_their_place_in_the_original(self) -> None:
        text = f"a <private>x</private> b {TOKENS['npm-token']} c"
        for finding in sanitize_text(text)[1]:
            self.assertIn(text[finding.start : finding.end], ("<private>x</private>", TOKENS["npm-token"]))


class StorableTest(TestCase):
    def test_nul_and_lone_surrogates_are_replaced(self) -> None:
        self.assertEqual(sanitize_text("a\x00b\ud800c\udfff")[0], "a\ufffdb\ufffdc\ufffd")

    def test_json_values_are_copied_and_cleaned_with_their_keys(self) -> None:
        token = TOKENS["npm-token"]
        value: dict[str, Any] = {token: [token, 1, None, True, {"a": f"x {token}"}], "n": 1.5}
        clean, findings = sanitize(value)
        masked = "[REDACTED:npm-token]"
        self.assertEqual(clean, {masked: [masked, 1, None, True, {"a": f"x {masked}"}], "n": 1.5})
        self.assertEqual(len(findings), 3)
        self.assertIn(token, value)

    def test_keys_that_become_equal_lose_no_value(self) -> None:
        clean, _ = sanitize({f"npm_{BODY[:36]}": 1, f"npm_{BODY[1:37]}": 2})
        self.assertEqual(sorted(clean.values()), [1, 2])
