from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from unittest import TestCase

from benchmarks.quality.secrets.form_lines import FORMS
from benchmarks.quality.secrets.forms import form_samples
from memoryhub.core.secrets.rule import SecretFinding
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text

BODY = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3kL5mN7"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

TOKEN = "kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg"
PASSWORD = "Falcon4821!x"
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
    *"{}|It is {}.|({})|use {}, then|'{}'|\"{}\"|`{}`|<{}>|key={}|{};|%20{}|[{}]".split("|"),
    *('\\"{}\\"', "a\\n{}\\nb", "\n{}\n", '{{"a": "x\\n{}"}}'),
)


class SanitizeTestCase(TestCase):
    def assert_kept(self, *texts: str) -> None:
        for text in texts:
            with self.subTest(text=text):
                self.assertEqual(sanitize_text(text), (text, []))

    def assert_removed(self, secret: str, *texts: str) -> None:
        """The secret is in none of the texts, which have ``{}`` in its place, once they are sanitised."""
        for text in texts:
            with self.subTest(text=text):
                self.assertNotIn(secret, sanitize_text(text.replace("{}", secret))[0])

    def assert_masked(self, *texts: str, secret: str = TOKEN, levels: int = 1) -> None:
        """As `assert_removed`, also in JSON and, with two levels, in JSON in JSON."""
        for text in texts:
            written = text.replace("{}", secret)
            for level in range(levels + 1):
                with self.subTest(text=text, level=level):
                    self.assertNotIn(json.dumps(secret)[1:-1], sanitize_text(written)[0])
                written = json.dumps({"text": written})


class TokensWithAKnownPrefixTest(SanitizeTestCase):
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
        self.assertEqual(finding, SecretFinding("npm-token", "npm-token", 8, 48))


class StructuredSecretsTest(SanitizeTestCase):
    def test_the_password_of_any_url_is_masked_and_the_rest_is_kept(self) -> None:
        for scheme in ("postgres", "postgresql+psycopg", "mysql", "mongodb+srv", "redis", "amqps", "https", "ftp"):
            clean, findings = sanitize_text(f"see {scheme}://ann:s3cr@t:x@db.host:5432/app?x=1.")
            self.assertEqual(clean, f"see {scheme}://ann:[REDACTED:url-password]@db.host:5432/app?x=1.")
            self.assertEqual(findings[0].type, "url-password")
        for start, host in (("postgres://user", "host"), ("redis://", "host")):  # even a plain word
            clean, _ = sanitize_text(f"{start}:pass@{host}")
            self.assertEqual(clean, f"{start}:[REDACTED:url-password]@{host}")

    def test_a_url_in_escaped_json_is_masked(self) -> None:
        text = json.dumps(json.dumps({"dsn": "postgres://ann:hunter2@db/x"}))
        self.assert_removed("hunter2", text, text.replace("/", "\\/"))

    def test_a_url_without_a_password_is_left_alone(self) -> None:
        self.assert_kept(
            "https://host:8080/a@b", "ssh://git@host/x", "https://${USER}:${PASS}@host", "http://a:<p>@host"
        )

    def test_an_aws_secret_key_is_known_by_its_context(self) -> None:
        self.assert_removed(
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzK3pQ9tLmN",
            "aws_secret_access_key = {}",
            'AWS_SECRET_ACCESS_KEY="{}"',
            "The AWS secret is {}.",
            '{"SecretAccessKey": "{}"}',
            '\\"aws_secret\\": \\"{}\\"',
        )

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

    def test_headers_webhooks_and_connection_strings_are_masked(self) -> None:
        basic = base64.b64encode(b"ann:hunter2").decode()
        account = base64.b64encode(bytes(range(64))).decode()
        hook = "qKirRWalryBGqKirRWalryBG"
        for secret, text in (
            (BODY[:32], "Authorization: Bearer {}"),
            (basic, 'curl -H "Authorization: Basic {}" https://x'),
            (BODY[:32], "Authorization: token {}"),
            ("hunter2x", "curl -u ann:{} https://x"),
            (hook[12:], f"https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/{hook}"),
            (BODY, f"https://discord.com/api/webhooks/123456789012345678/{BODY}{BODY[:14]}"),
            ("AAECAwQF", f"AccountName=a;AccountKey={account};X=y"),
            ("hunter2x!", "Server=db;User=sa;Password={};"),
        ):
            self.assert_removed(secret, text)


class AssignedSecretsTest(SanitizeTestCase):
    SECRET = "q9Zt4vB7nK2mX8wL"

    def test_every_way_to_write_an_assignment_is_read(self) -> None:
        forms = (
            'password={}|DB_PASSWORD={}|export API_KEY=\'{}\'|api-key: {}|apiKey: "{}",|"secret": "{}"|'
            'token := "{}"|"x_token" => "{}"|String token = "{}";|setProperty("X_TOKEN", "{}")|'
            "<apiToken>\n  {}\n</apiToken>|password is {}.|the token token={})|?access_token={}&x=1|passwd: {}|"
            "client_secret\t=\t`{}`|--password {}|_authToken={}|auth_token ?= {}|"
            "passwort**: __{}__(old)|export Password (prod) is __{}__[1]"
        )
        escaped = ('{\\"token\\": \\"{}\\"}', '{\\\\\\"token\\\\\\": \\\\\\"{}\\\\\\"}')
        for form in (*forms.split("|"), *escaped):
            clean, findings = sanitize_text(form.replace("{}", self.SECRET))
            self.assertNotIn(self.SECRET, clean, form)
            self.assertEqual(findings[0].type, "secret", form)

    def test_other_text_is_left_alone(self) -> None:
        texts = (
            "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b|id: 52acf265-3fc6-4ecd-804a-15940bd04653|"
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4|password: <token>|"
            "password = xxxxxxxxxxxx|token=${TOKEN}|token: $TOKEN_2|api_key = 'your-api-key-1'|password: changeme|"
            "password = get_password(1)|password = os.environ['DB_PASSWORD_1']|password = settings.db.password1|"
            "token: [REDACTED:secret]|secret = example-secret-1|tokens = 4096|token_count: 12345678|max_tokens=1024|"
            "def test_password(self): pass|the password must have at least 8 characters|secret: ******|"
            'from auth import Ed25519PrivateKey|("auth", "0004_alter_user_username_opts")|'
            "password_hash = 'pbkdf2'|Bearer authentication|Basic knowledge of things|{{ password }}|token: null|"
            "secretary = Smith1990|tokenizer: cl100k_base|a_key, b_key = 12, 13|foo.token, bar.token2|"
            "Co-authored-by: okunomiya1992 <maya@example.org>|authored = okunomiya1992"
        )
        self.assert_kept(
            *texts.split("|"), f"sha256: {HEX}", f"digest = '{HEX}'", f'"integrity": "sha512-{BODY * 2}=="'
        )

    def test_a_value_is_judged_by_the_key_that_holds_it(self) -> None:
        clean, [finding] = sanitize({"db": {"password": "hunter2x"}, "title": "hunter2x"})
        self.assertEqual(clean, {"db": {"password": "[REDACTED:secret]"}, "title": "hunter2x"})
        self.assertEqual(finding.rule, "named-secret")


class DigestsAndUuidsTest(SanitizeTestCase):
    SIZES = (32, 40, 56, 64, 96, 128)
    UUID = "4b1d0c1e-8f3a-4b6d-9a27-5c1f0e9d7b42"
    PLAIN = (
        *"{}|commit {}|({})|`{}`|a/{}/b.json|image@sha256:{}|sha256-{}|digest={}|fixed in {}.".split("|"),
        "{}  file.tar.gz",
        *("line\\n{}\\n", "%20{}", "\\u00a0{}", "datadog release {}", "cloudflare commit: {}", '{{"id": "{}"}}'),
        "secret scanning found it in commit {}",
    )
    NAMED = (
        'password={}|api_key: {}|the token is {}|ALGOLIA_API_KEY={}|datadog_api_key = "{}"|cloudflare-token: {}|'
        "Authorization: Bearer {}|https://ann:{}@example.org"
    ).split("|")

    def values(self) -> list[str]:
        rest = hashlib.sha512(b"one").hexdigest() + hashlib.sha512(b"two").hexdigest()
        digests = [("4b1d" + rest)[:size] for size in self.SIZES]
        return [*digests, *map(str.upper, digests), self.UUID, self.UUID.upper()]

    def test_alone_and_in_every_context_they_stay(self) -> None:
        self.assert_kept(*(form.format(value) for form in self.PLAIN for value in self.values()))

    def test_under_a_name_that_says_so_they_are_masked(self) -> None:
        digest = ("4b1d" + hashlib.sha256(b"one").hexdigest())[:32]
        self.assert_removed(digest, *self.NAMED)
        self.assertNotIn(digest, json.dumps(sanitize({"password": digest})[0]))

    def test_what_is_longer_or_part_of_a_word_is_judged_as_before(self) -> None:
        digest = "4b1d" + hashlib.sha256(b"one").hexdigest()[4:]
        self.assert_removed(digest[:28], digest[:42], f"{digest}xyz", f"{digest[:31]}X{digest[32:]}", f"{digest}_1")


class PrivateBlocksTest(SanitizeTestCase):
    def test_a_block_is_taken_out_whole_and_makes_no_new_tag(self) -> None:
        for text, remainder in (
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
            ("a<pri<private>x</private>vate>secret</private>b", "ab"),
            ("a<pri</private>vate>secret", "a"),
        ):
            self.assertEqual(sanitize_text(text)[0], remainder, text)

    def test_other_tags_are_left_alone(self) -> None:
        others = "<privateer>x</privateer>|<private-key>|private > public < x|a < private b|<p>private</p>"
        self.assert_kept(*others.split("|"))

    def test_a_secret_that_only_meets_when_a_block_is_out_is_masked(self) -> None:
        clean, findings = sanitize_text(f"ghp_{BODY[:20]}<private>x</private>{BODY[20:36]}!")
        self.assertEqual(clean, "[REDACTED:github-token]!")
        self.assertEqual({finding.type for finding in findings}, {"private", "github-token"})

    def test_findings_name_their_place_in_the_original(self) -> None:
        text = f"a <private>x</private> b {TOKENS['npm-token']} c"
        for finding in sanitize_text(text)[1]:
            self.assertIn(text[finding.start : finding.end], ("<private>x</private>", TOKENS["npm-token"]))


class StorableTest(SanitizeTestCase):
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


TYPED_PASSWORD = "Wq7rT#4kLm"
OTHER_HEX = "7c1e5a90d3b84f26e8a17d05c94b3f62"


class PasswordsInFormatsTest(SanitizeTestCase):
    def test_a_typed_password_is_taken_out_of_every_format(self) -> None:
        forms = (
            "CREATE USER 'ann'@'%' IDENTIFIED BY '{}'|CREATE LOGIN sa WITH PASSWORD = '{}'|"
            "ALTER ROLE app WITH ENCRYPTED PASSWORD '{}';|Provider=SQLOLEDB;Uid=ann;Pwd={};|"
            "Server=db,1433;Database=app;User ID=ann;Password={};Encrypt=True|"
            "mysqli_connect('db.internal', 'ann', '{}', 'app')|new NetworkCredential('ann', '{}')|"
            "requests.get(url, auth=('ann', '{}'))|Connect-VIServer vc.local -User ann -Password {}|"
            "schtasks /create /tn Backup /ru ann /rp {}|net use Z: \\\\server\\share /user:CORP\\ann {}|"
            "<AdministratorPassword><Value>{}</Value></AdministratorPassword>|enable secret {}|"
            "snmp-server community {} RW|username ann privilege 15 password 0 {}|"
            "user = 'ann'  # the first\npassword = '{}'|ann@10.0.0.7 (pw:{})|login with PW: {}, please|"
            "The password for user ann is '{}'.|user%5Bpassword%5D={}|12:password={}|Settings::PASSWORD = '{}';|"
            "curl --proxy-user ann:{} https://x|final String password = new String('{}');|"
            "String p = System.getenv('APP_PASSWORD') ?? '{}';"
        )
        self.assert_masked(*forms.split("|"), secret=TYPED_PASSWORD, levels=2)

    def test_the_word_for_it_is_known_in_more_languages(self) -> None:
        for word in "contraseña|mot de passe|Kennwort|senha|пароль|密码|パスワード|비밀번호|hasło".split("|"):
            text = json.dumps({"text": f"{word}: {{}}"}, ensure_ascii=False)
            self.assert_removed(TYPED_PASSWORD, f"{word}: {{}}", text, json.dumps({"text": f"{word}: {{}}"}))

    def test_a_word_is_a_password_where_its_place_says_so(self) -> None:
        self.assert_removed(
            "harbourlantern",
            "Server=db;Uid=ann;Pwd={};",
            '{"username": "ann", "password": "{}"}',
            "user: ann\npassword: {}\n",
            "SHOP_ADMIN_PASSWORD={}\n",
            "CREATE USER ann IDENTIFIED BY '{}'",
        )

    def test_keys_of_more_services_are_known_by_how_they_begin(self) -> None:
        for token in (
            f"bkua_{OTHER_HEX}{OTHER_HEX[:8]}",
            f"CFPAT-{BODY[:43]}",
            f"AGE-SECRET-KEY-PQ-1{'QPZRY9X8GF2TVDW0' * 3}",
            f"sk_{OTHER_HEX}{OTHER_HEX[:16]}",
            f"key_{OTHER_HEX}{OTHER_HEX}",
            f"1000.{OTHER_HEX}.{OTHER_HEX[::-1]}",
            f"AAAAb1cD2eF:APA91b{BODY}{BODY}{BODY[:30]}",
            f"nvapi-{BODY}{BODY[:10]}",
            f"A21AA{BODY}{BODY[:10]}",
            "access-sandbox-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        ):
            for form in ("{}", "it is {}.", "({})", "`{}`", "{}, then", '{{"k": "{}"}}'):
                with self.subTest(token=token[:12], form=form):
                    self.assertNotIn(token[-20:], sanitize_text(form.format(token))[0])

    def test_hashes_and_encrypted_texts_are_taken_out(self) -> None:
        self.assert_removed(
            OTHER_HEX,
            "$ANSIBLE_VAULT;1.1;AES256\n{}{}\n{}{}\n",
            "$krb5tgs$23$*ann$CORP$x*${}${}{}",
            f"Administrator:500:{{}}:{OTHER_HEX[::-1]}:::",
        )
        self.assert_removed(BODY[:32], "{SSHA}{}")

    def test_the_key_of_a_service_may_be_a_uuid_or_twenty_digits(self) -> None:
        uuid = "0b7f3c1d-52e6-4a8b-9c3e-d1f2a4b6c8e0"
        for text in (f"statuspage_key = {uuid}", f"splunk_hec_token: {uuid}", "CLAY_KEY: 7c1e5a90d3b84f26e8a1"):
            self.assertIn("[REDACTED:", sanitize_text(text)[0], text)


class NoSecretsInFormatsTest(SanitizeTestCase):
    def test_other_values_in_the_place_of_secrets_stay(self) -> None:
        self.assert_kept(
            "see https://user:pass@example.org/ and http://username:password@host",
            '"NextToken": "CpHNsscimcV5oH7bSbub03CI2Qms5pNpNm53MNlR0YcXAkp0xFl"',
            "--client-token 550e8400-e29b-41d4-a716-446655440000",
            "arn:aws:secretsmanager:us-west-2:123456789012:secret:MyTestSecret-a1b2c3",
            '"AwsKmsKey": "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"',
            '"AWS::ApiGateway::ApiKey": "48205d4ffd7feba3"',
            "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/EBSSnapshots",
            "AKIAIOSFODNN7EXAMPLE",
            '"S3Key": "builds/server_build_123.zip"',
            "smtp.login(username=auth_user, password=auth_password)",
            '{"username": "ann", "password": "password"}',
            "CREATE USER ann IDENTIFIED BY 'password'",
            "use the username and password authentication",
            '"LastAuthenticated": "2019-09-30T23:02:00Z"',
            "Given final block not properly padded (secret=AES/CBC/PKCS5Padding)",
            "key_derivation: PBKDF2-HMAC-SHA256/600000",
            "password: argon2id/m=64MiB/t=3",
            "partition key = USER#48213, sort key = LOGIN#2024-05-08T10:22:31Z",
            "User.objects.filter(auth_token__created__lt=cutoff_2024).delete()",
            'let tokenAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"',
            "token: EOF_TOKEN_2, keyword: AUTH_LOGIN_3",
            "numpy/ma.pyi,sha256=sk_HDVLeOoNeF4VOGHDI0iUT8YHeeOJjxyZTO4q0ddE,180",
        )


LETTERS = "qzRtVbnKxwPlMjhGfdScYvTe"
SIGNS = "x#2kq!9v@zt$w(7m^p&r)3b*yd-j_h+f=n5s8c6g1l0t4q"


class FormsTest(SanitizeTestCase):
    def test_a_dash_an_arrow_a_bracket_or_a_cell_assigns(self) -> None:
        self.assert_masked(
            "API key - {}",
            "Access token — {}",
            "API key → {}",
            "| API token | {} |",
            "| **Secret key** | `{}` | keep |",
            "API key (staging): {}",
            "api key [prod] = {}",
            "<tr><td>API key</td><td>{}</td></tr>",
            "the API key ({}) is in the vault",
        )

    def test_the_first_row_of_a_table_names_its_columns(self) -> None:
        self.assert_masked(
            "| host | user | password |\n|---|---|---|\n| db1 | app | {} |\n",
            "host,user,password\ndb1,app,{}\n",
            " user  | password\n-------+----------\n report | {}\n",
            secret=PASSWORD,
        )
        self.assert_masked("id,name,api_token\n7,build,{}")
        self.assert_kept("| user | password |\n|---|---|\n| ann | required |", "f(user, password,\n  name2, other3,\n)")

    def test_an_element_may_hold_its_secret_in_braces(self) -> None:
        self.assert_masked("<secret>{{}}</secret>", "<apiToken>{}</apiToken>", "<password><![CDATA[{}]]></password>")

    def test_a_block_of_yaml_or_markdown_is_read(self) -> None:
        self.assert_masked(
            "api_key: |\n  {}", "token: >-\n  {}\nuser: x", "TOKEN: # note\n  {}", "API key:\n```\n{}\n```"
        )

    def test_session_cookies_are_secrets_and_session_ids_are_not(self) -> None:
        self.assert_masked("Cookie: sessionid={}; theme=dark", "Set-Cookie: PHPSESSID={}; path=/")
        self.assert_masked("Cookie: connect.sid=s%3A{}.x", "Cookie: csrf=abc; auth_session={}")
        self.assert_kept('{"sessionId": "0199b1c2-52e6-7a8b-9c3e-d1f2a4b6c8e0"}', "session_id=0199b1c252e67a8b")

    def test_keys_of_frameworks_have_signs(self) -> None:
        self.assert_masked(
            "SECRET_KEY = 'django-insecure-{}'",
            "define('AUTH_KEY', '{}');",
            "define( 'NONCE_SALT',  '{} x' );",
            secret=SIGNS,
        )

    def test_a_password_stands_beside_its_user(self) -> None:
        forms = (
            "login: admin / {}|user / password: admin / {}|creds: admin:{}|Credentials: `root` / `{}`|"
            "log in as admin with {}"
        )
        self.assert_masked(*forms.split("|"), secret=PASSWORD)

    def test_other_languages_say_password_is(self) -> None:
        sentences = (
            "La contraseña es {}|la clave es {}|Das Passwort lautet {}|Das Kennwort für den Server ist {}|"
            "Le mot de passe est {}|A senha é {}|Пароль: {}|Пароль такой: {}|密码是 {}|数据库密码是{}，请保密|"
            "パスワードは「{}」です|비밀번호는 {} 입니다|Hasło to {}"
        )
        self.assert_masked(*sentences.split("|"), secret=PASSWORD)
        self.assertEqual(sanitize_text(f"密码是{PASSWORD}，请保密")[0], "密码是[REDACTED:secret]，请保密")

    def test_a_token_may_have_only_letters_and_words_may_have_digits(self) -> None:
        self.assert_masked("API_TOKEN={}", "client_secret = '{}'", '"access_token": "{}"', secret=LETTERS)
        self.assert_masked("API_TOKEN={}", "client_secret: '{}'", secret="maple-river-stone-4821")

    def test_a_password_in_an_address_has_any_sign(self) -> None:
        for secret in ("ab#cd9", "ab?cd9", "ab/cd9/x", "ab@cd9"):
            self.assert_masked("postgres://app:{}@db.example.org:5432/app", "redis://:{}@cache/0", secret=secret)
        self.assert_kept(
            "http://localhost:3000/x?mail=a@b.c", "see https://host:8080/@scope/package", "http://[::1]:80/a@b"
        )

    def test_commands_take_passwords_in_options_and_pipes(self) -> None:
        self.assert_masked("echo '{}' | sudo -S apt update", "echo 'ann:{}' | sudo chpasswd", secret=PASSWORD)
        commands = (
            "redis-cli -h cache -a {} ping|sqlcmd -S db -U sa -P '{}'|ldapsearch -x -D cn=admin -w {}|"
            "smbclient //srv/share -U ann%{}|rabbitmqctl add_user ann {}|openssl rsa -passin pass:{} -in key.pem"
        )
        self.assert_masked(*commands.split("|"), secret=PASSWORD)

    def test_calls_take_keys(self) -> None:
        calls = "Fernet('{}')|jwt.sign(payload, '{}')|hmac.new(b\"{}\", body, sha256)|new Client(\"{}\", {})"
        self.assert_masked(*calls.split("|"), "os.getenv('SECRET_TOKEN') or '{}'")

    def test_most_generated_forms_are_found(self) -> None:
        samples = [sample for _, sample in form_samples()]
        found = sum(str(sample.secret) not in sanitize_text(sample.text)[0] for sample in samples)
        self.assertGreater(found / len(samples), 0.9)
        self.assertEqual({sample.type for sample in samples}, set(FORMS))


class RepeatsTest(SanitizeTestCase):
    def test_a_value_found_once_is_masked_wherever_it_occurs_again(self) -> None:
        clean, findings = sanitize_text(f"{TOKEN}\nThat was the API key: {TOKEN}\ncurl /v1/{TOKEN}/x")
        self.assertNotIn(TOKEN, clean)
        self.assertEqual([finding.start for finding in findings], [0, 51, 89])
        self.assertNotIn(PASSWORD, sanitize_text(f"password: {PASSWORD}\n> {PASSWORD}.\nok")[0])

    def test_also_in_the_other_strings_of_an_event(self) -> None:
        clean, findings = sanitize(
            {"note": f"tried {TOKEN}", "body": [f"api_key={TOKEN}"], "keys": {"secret": PASSWORD}}
        )
        self.assertNotIn(TOKEN, json.dumps(clean))
        self.assertEqual(len(findings), 3)

    def test_words_and_short_values_are_not_repeated(self) -> None:
        for secret in ("password", "abc123", "hunter2"):
            text = f"postgres://ann:{secret}@db/x and then {secret} here"
            self.assertIn(f"then {secret} here", sanitize_text(text)[0])

    def test_many_values_take_no_longer(self) -> None:
        text = "".join(f"API_KEY_{n}=kX3vR9pLm2{n}Qw7TzB4nY\nx kX3vR9pLm2{n}Qw7TzB4nY\n" for n in range(200))
        self.assertNotIn("kX3vR9pLm2", sanitize_text(text)[0])


class OnlyLooksLikeASecretTest(SanitizeTestCase):
    def test_these_texts_stay(self) -> None:
        self.assert_kept(
            "CreateTokenView (app.py:2594-2630)",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            '{"token": "memberships:write"}',
            'import "github.com/aws/aws-sdk-go-v2/credentials"\n\t"github.com/aws/aws-sdk-go-v2/service2"',
            "golang.org/x/oauth2 v0.0.0-20180821212333-d2e6202438be/go.mod h1:x",
            "stripe_key: pk_live_51Hxyz8LkdIwHu7ixABCDEFGH",
            '"minipass": "^7.1.2", "js-tokens": "npm:^4.0.0"',
            "set_pass(RenderingPass::SubpixelPass1)",
            "token=t&currentPage=1&currentPageSize=1000",
            "The password policy (minimum-8) applies - see docs/auth-2.md",
            'const tokenChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"',
            "compile 'io.jsonwebtoken:jjwt-jackson:0.11.0:deprecated'",
            f"sha256: {'0b7f3c1d52e64a8b' * 4}",
            "id 0b7f3c1d-52e6-4a8b-9c3e-d1f2a4b6c8e0 of the request",
        )
