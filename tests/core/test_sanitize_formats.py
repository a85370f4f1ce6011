import json
from unittest import TestCase

from memoryhub.core.secrets.sanitize import sanitize_text

PASSWORD = "Wq7rT#4kLm"
WORD = "harbourlantern"
HEX = "7c1e5a90d3b84f26e8a17d05c94b3f62"
BODY = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3kL5mN7"


class PasswordsInFormatsTest(TestCase):
    def assert_taken(self, form: str, secret: str) -> None:
        text = form.format(secret)
        for given in (text, json.dumps({"text": text}), json.dumps(json.dumps({"text": text}))):
            self.assertNotIn(secret, sanitize_text(given)[0], given)

    def test_a_typed_password_is_taken_out_of_every_format(self) -> None:
        for form in (
            "CREATE USER 'ann'@'%' IDENTIFIED BY '{}'",
            "CREATE LOGIN sa WITH PASSWORD = '{}'",
            "ALTER ROLE app WITH ENCRYPTED PASSWORD '{}';",
            "Server=db,1433;Database=app;User ID=ann;Password={};Encrypt=True",
            "Provider=SQLOLEDB;Uid=ann;Pwd={};",
            "mysqli_connect('db.internal', 'ann', '{}', 'app')",
            "new NetworkCredential('ann', '{}')",
            "requests.get(url, auth=('ann', '{}'))",
            "Connect-VIServer vc.local -User ann -Password {}",
            "schtasks /create /tn Backup /ru ann /rp {}",
            "net use Z: \\\\server\\share /user:CORP\\ann {}",
            "<AdministratorPassword><Value>{}</Value></AdministratorPassword>",
            "enable secret {}",
            "snmp-server community {} RW",
            "username ann privilege 15 password 0 {}",
            "user = 'ann'  # the first\npassword = '{}'",
            "ann@10.0.0.7 (pw:{})",
            "login with PW: {}, please",
            "The password for user ann is '{}'.",
            "user%5Bpassword%5D={}",
            "12:password={}",
            "Settings::PASSWORD = '{}';",
            "curl --proxy-user ann:{} https://x",
            "final String password = new String('{}');",
            "String p = System.getenv('APP_PASSWORD') ?? '{}';",
        ):
            with self.subTest(form=form):
                self.assert_taken(form, PASSWORD)

    def test_the_word_for_it_is_known_in_more_languages(self) -> None:
        for word in (
            "contraseña",
            "mot de passe",
            "Kennwort",
            "senha",
            "пароль",
            "密码",
            "パスワード",
            "비밀번호",
            "hasło",
        ):
            text = f"{word}: {PASSWORD}"
            for given in (text, json.dumps({"text": text}), json.dumps({"text": text}, ensure_ascii=False)):
                with self.subTest(given=given):
                    self.assertNotIn(PASSWORD, sanitize_text(given)[0])

    def test_a_word_is_a_password_where_its_place_says_so(self) -> None:
        for form in (
            "Server=db;Uid=ann;Pwd={};",
            '{{"username": "ann", "password": "{}"}}',
            "user: ann\npassword: {}\n",
            "SHOP_ADMIN_PASSWORD={}\n",
            "CREATE USER ann IDENTIFIED BY '{}'",
        ):
            with self.subTest(form=form):
                self.assertNotIn(WORD, sanitize_text(form.format(WORD))[0])

    def test_keys_of_more_services_are_known_by_how_they_begin(self) -> None:
        for token in (
            f"bkua_{HEX}{HEX[:8]}",
            f"CFPAT-{BODY[:43]}",
            f"AGE-SECRET-KEY-PQ-1{'QPZRY9X8GF2TVDW0' * 3}",
            f"sk_{HEX}{HEX[:16]}",
            f"key_{HEX}{HEX}",
            f"1000.{HEX}.{HEX[::-1]}",
            f"AAAAb1cD2eF:APA91b{BODY}{BODY}{BODY[:30]}",
            f"nvapi-{BODY}{BODY[:10]}",
            f"A21AA{BODY}{BODY[:10]}",
            "access-sandbox-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        ):
            for form in ("{}", "it is {}.", "({})", "`{}`", "{}, then", '{{"k": "{}"}}'):
                with self.subTest(token=token[:12], form=form):
                    self.assertNotIn(token[-20:], sanitize_text(form.format(token))[0])

    def test_hashes_and_encrypted_texts_are_taken_out(self) -> None:
        for text, secret in (
            (f"$ANSIBLE_VAULT;1.1;AES256\n{HEX}{HEX}\n{HEX}{HEX}\n", HEX),
            (f"$krb5tgs$23$*ann$CORP$x*${HEX}${HEX}{HEX}", HEX),
            (f"Administrator:500:{HEX}:{HEX[::-1]}:::", HEX),
            ("{SSHA}" + BODY[:32], BODY[:32]),
        ):
            self.assertNotIn(secret, sanitize_text(text)[0], text)

    def test_the_key_of_a_service_may_be_a_uuid_or_twenty_digits(self) -> None:
        for text in (
            "statuspage_key = 0b7f3c1d-52e6-4a8b-9c3e-d1f2a4b6c8e0",
            "splunk_hec_token: 0b7f3c1d-52e6-4a8b-9c3e-d1f2a4b6c8e0",
            "CLAY_KEY: 7c1e5a90d3b84f26e8a1",
        ):
            self.assertIn("[REDACTED:", sanitize_text(text)[0], text)


class NoSecretsInFormatsTest(TestCase):
    def test_other_values_in_the_place_of_secrets_stay(self) -> None:
        for text in (
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
        ):
            self.assertEqual(sanitize_text(text)[0], text)
