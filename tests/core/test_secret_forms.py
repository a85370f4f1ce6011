"""Forms in which people write secrets, and texts that only look like them."""

import json
from unittest import TestCase

from benchmarks.quality.secrets.forms import FORMS, form_samples
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text

TOKEN = "kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg"
PASSWORD = "Falcon4821!x"
LETTERS = "qzRtVbnKxwPlMjhGfdScYvTe"
SIGNS = "x#2kq!9v@zt$w(7m^p&r)3b*yd-j_h+f=n5s8c6g1l0t4q"


class FormsTest(TestCase):
    def assert_masked(self, *texts: str, secret: str = TOKEN) -> None:
        for text in texts:
            for written in (text.replace("{}", secret), json.dumps(text.replace("{}", secret))):
                with self.subTest(text=written):
                    self.assertNotIn(json.dumps(secret)[1:-1], sanitize_text(written)[0])

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
        for text in ("| user | password |\n|---|---|\n| ann | required |", "f(user, password,\n  name2, other3,\n)"):
            self.assertEqual(sanitize_text(text)[0], text)

    def test_an_element_may_hold_its_secret_in_braces(self) -> None:
        self.assert_masked("<secret>{{}}</secret>", "<apiToken>{}</apiToken>", "<password><![CDATA[{}]]></password>")

    def test_a_block_of_yaml_or_markdown_is_read(self) -> None:
        self.assert_masked(
            "api_key: |\n  {}", "token: >-\n  {}\nuser: x", "TOKEN: # note\n  {}", "API key:\n```\n{}\n```"
        )

    def test_session_cookies_are_secrets_and_session_ids_are_not(self) -> None:
        self.assert_masked(
            "Cookie: sessionid={}; theme=dark",
            "Set-Cookie: PHPSESSID={}; path=/",
            "Cookie: connect.sid=s%3A{}.x",
            "Cookie: csrf=abc; auth_session={}",
        )
        for text in ('{"sessionId": "0199b1c2-52e6-7a8b-9c3e-d1f2a4b6c8e0"}', "session_id=0199b1c252e67a8b"):
            self.assertEqual(sanitize_text(text)[0], text)

    def test_keys_of_frameworks_have_signs(self) -> None:
        self.assert_masked(
            "SECRET_KEY = 'django-insecure-{}'",
            "define('AUTH_KEY', '{}');",
            "define( 'NONCE_SALT',  '{} x' );",
            secret=SIGNS,
        )

    def test_a_password_stands_beside_its_user(self) -> None:
        self.assert_masked(
            "login: admin / {}",
            "user / password: admin / {}",
            "creds: admin:{}",
            "Credentials: `root` / `{}`",
            "log in as admin with {}",
            secret=PASSWORD,
        )

    def test_other_languages_say_password_is(self) -> None:
        self.assert_masked(
            "La contraseña es {}",
            "la clave es {}",
            "Das Passwort lautet {}",
            "Das Kennwort für den Server ist {}",
            "Le mot de passe est {}",
            "A senha é {}",
            "Пароль: {}",
            "Пароль такой: {}",
            "密码是 {}",
            "数据库密码是{}，请保密",
            "パスワードは「{}」です",
            "비밀번호는 {} 입니다",
            "Hasło to {}",
            secret=PASSWORD,
        )
        self.assertEqual(sanitize_text(f"密码是{PASSWORD}，请保密")[0], "密码是[REDACTED:secret]，请保密")

    def test_a_token_may_have_only_letters_and_words_may_have_digits(self) -> None:
        self.assert_masked("API_TOKEN={}", "client_secret = '{}'", '"access_token": "{}"', secret=LETTERS)
        self.assert_masked("API_TOKEN={}", "client_secret: '{}'", secret="maple-river-stone-4821")

    def test_a_password_in_an_address_has_any_sign(self) -> None:
        for secret in ("ab#cd9", "ab?cd9", "ab/cd9/x", "ab@cd9"):
            self.assert_masked("postgres://app:{}@db.example.org:5432/app", "redis://:{}@cache/0", secret=secret)
        for text in (
            "http://localhost:3000/x?mail=a@b.c",
            "see https://host:8080/@scope/package",
            "http://[::1]:80/a@b",
        ):
            self.assertEqual(sanitize_text(text)[0], text)

    def test_commands_take_passwords_in_options_and_pipes(self) -> None:
        self.assert_masked(
            "redis-cli -h cache -a {} ping",
            "sqlcmd -S db -U sa -P '{}'",
            "echo '{}' | sudo -S apt update",
            "echo 'ann:{}' | sudo chpasswd",
            "ldapsearch -x -D cn=admin -w {}",
            "smbclient //srv/share -U ann%{}",
            "rabbitmqctl add_user ann {}",
            "openssl rsa -passin pass:{} -in key.pem",
            secret=PASSWORD,
        )

    def test_calls_take_keys(self) -> None:
        self.assert_masked(
            "Fernet('{}')",
            "jwt.sign(payload, '{}')",
            'hmac.new(b"{}", body, sha256)',
            'new Client("{}", {})',
            "os.getenv('SECRET_TOKEN') or '{}'",
        )

    def test_most_generated_forms_are_found(self) -> None:
        samples = [sample for _, sample in form_samples()]
        found = sum(str(sample.secret) not in sanitize_text(sample.text)[0] for sample in samples)
        self.assertGreater(found / len(samples), 0.9)
        self.assertEqual({sample.type for sample in samples}, set(FORMS))


class RepeatsTest(TestCase):
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


class OnlyLooksLikeASecretTest(TestCase):
    def test_these_texts_stay(self) -> None:
        for text in (
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
        ):
            with self.subTest(text=text):
                self.assertEqual(sanitize_text(text)[0], text)
