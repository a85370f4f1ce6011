"""Secrets that are recognised by their place only: words, phrases, header values; and other texts in such places."""

from __future__ import annotations

import base64

from memoryhub.core.secrets.sanitize import sanitize_text
from tests.core.test_sanitize import BODY, HEX, SanitizeTestCase

TOKEN = "kX3vR9pLm2Qw7TzB4nYs8HcJ5dFg"
WORD = "harbourlantern"
PHRASE = "seven quiet harbours"
TYPED = "hunter22"


class PasswordOfWordsTest(SanitizeTestCase):
    def test_a_phrase_in_quotes_is_a_password(self) -> None:
        self.assert_removed(
            PHRASE,
            'password = "{}"',
            "DB_PASSWORD='{}'",
            '{"user":"ann","passphrase": "{}"}',
            r"{\"db_password\": \"{}\"}",
            'psk="{}"',
            'final String dbPassword = "{}";',
            "<Password>{}</Password>",
            "mysql -u root -p'{}' shop",
            "curl -u 'ann:{}' https://example.org",
            "session({ secret: '{}' })",
            "gpg --batch --passphrase '{}' -d a.gpg",
        )

    def test_a_word_in_quotes_is_a_password(self) -> None:
        self.assert_removed(
            WORD,
            'password = "{}"',
            'Password: "{}",',
            'if (password == "{}") {',
            'client.setPassword("{}");',
            '.password("{}")',
            'getConnection(url, "sa", "{}")',
            "new mysqli('localhost', 'root', '{}', 'shop')",
            'WiFi.begin("Home", "{}");',
            "auth: { user: 'ann@example.org', pass: '{}' }",
        )

    def test_so_is_one_in_xml_and_in_the_settings_of_clients(self) -> None:
        self.assert_removed(
            WORD,
            "<password>{}</password>",
            '<wsse:Password Type="text">{}</wsse:Password>',
            '<db user="ann" password="{}"/>',
            '<add key="SmtpPassword" value="{}"/>',
            '<property name="connection.password">{}</property>',
            '<setting name="Password" serializeAs="String"><value>{}</value></setting>',
            "<key>password</key>\n<string>{}</string>",
            '{"key": "password", "value": "{}"}',
            "Server=db;Uid=ann;Pwd={};",
        )

    def test_so_is_one_alone_behind_its_name_on_a_line(self) -> None:
        self.assert_removed(
            WORD,
            "mail_password: {}\n",
            "DB_PASS={}\n",
            "db.password={}\nport=1\n",
            "[security]\nadmin_password = {}\n",
            "      - APP_PASSWORD={}\n",
            "requirepass {}\n",
            "rootpw {}\n",
        )

    def test_so_is_one_in_the_files_of_mail_clients(self) -> None:
        self.assert_removed(
            WORD,
            'set imap_pass = "{}"',
            "account work\nhost smtp.example.org\nuser ann\npassword {}\n",
            'poll mail.example.org user "ann" password "{}" ssl',
            "IMAPAccount work\nUser ann\nPass {}\n",
            'Host a\nPass "{}"\n',
            "remotepass = {}\n",
            "[smtp.example.org]:587 ann:{}\n",
            '"ann" * "{}" *',
            ': PSK "{}"',
        )

    def test_so_is_one_on_a_command_line(self) -> None:
        self.assert_removed(
            WORD,
            "./deploy --db-password {} --env prod",
            "docker run x --docker-password={}",
            "kubectl create secret generic db --from-literal=password={}",
            "vault kv put secret/db password={}",
            "mosquitto_pub -h mq -u ann -P {} -t a",
            "nmcli dev wifi connect Home password {}",
            "sqlplus system/{}@//db:1521/xe",
            "curl -d 'username=ann&password={}' https://example.org/login",
            "aws secretsmanager create-secret --name a --secret-string '{}'",
        )

    def test_so_is_one_that_a_constant_a_lisp_or_a_call_sets(self) -> None:
        self.assert_removed(
            WORD,
            'secret = "{}"; # of rndc',
            "$pass = '{}';",
            "define('DB_PASSWORD', '{}');",
            '(setq smtp-password "{}")',
            'storePassword "{}"',
            '#define WIFI_PASSWORD "{}"',
            'if (password.equals("{}")) {',
            "jwt.sign(payload, '{}')",
            "crypto.createHmac('sha256', '{}')",
            'client.connect("host", "ann", "{}");',
            'client.username_pw_set("ann", "{}")',
            '{"args": ["--password", "{}"]}',
        )

    def test_so_is_one_behind_the_name_of_its_file_or_of_its_setting(self) -> None:
        self.assert_removed(
            WORD,
            "grafana.ini: admin_password = {}\n",
            "JWT_SECRET={}\n",
            "cookie_secret: {}\n",
            "ENV DB_PASSWORD {}\n",
            'masterauth "{}"\n',
            "PGPASSWORD={} psql -h db\n",
            "terraform apply -var db_password={}\n",
            "a level=debug password={} host=db\n",
        )
        self.assert_removed("oboe", "requirepass {}", '<password value="x">{}</password>')

    def test_so_is_one_in_the_configuration_of_devices_and_daemons(self) -> None:
        self.assert_removed(
            WORD,
            "enable secret 0 {}\n",
            "snmp-server community {} RO\n",
            "rocommunity {}\n",
            "com2sec readonly default {}\n",
            " ikev1 pre-shared-key {}\n",
            "crypto isakmp key {} address 1.2.3.4\n",
            "neighbor 1.2.3.4 password {}\n",
            "    auth_pass {}\n",
            "user default on >{} ~* +@all\n",
            "auth-user-pass\nann\n{}\n",
            "<keyMaterial>{}</keyMaterial>",
        )

    def test_so_is_one_among_the_arguments_of_more_commands(self) -> None:
        self.assert_removed(
            WORD,
            "snmpwalk -v2c -c {} 10.0.0.1",
            "ipmitool -U ADMIN -P {} -H host",
            "xfreerdp /u:ann /p:{} /v:host",
            "keytool -storepass {} -keystore a.jks",
            "unzip -P {} a.zip",
            "wpa_passphrase Home {}",
            "mongodump --username ann --password {}",
            "msmtp: passwordeval echo {}",
            "curl -d 'user=ann&pass={}' https://example.org/login",
            'sql.Open("mysql", "app:{}@tcp(db:3306)/x")',
        )

    def test_so_is_one_in_a_session_of_a_protocol(self) -> None:
        self.assert_removed(
            WORD,
            ">>> USER ann\n>>> PASS {}\n",
            "---> PASS {}\n",
            "C: USER ann\nS: +OK\nC: PASS {}\n",
            'a1 LOGIN ann "{}"\n',
            '"AUTH" "{}"',
        )

    def test_labels_messages_types_and_variables_stay(self) -> None:
        self.assert_kept(
            'password = "Enter your password here"',
            '"password": "Mot de passe oublié ?"',
            '"password": "The password field is required."',
            'password: "is too weak"',
            '"password": "current-password"',
            'label="Password" placeholder="Type a strong password"',
            "<password>password</password>",
            "<password>${db.password}</password>",
            '<xs:element name="password" type="xs:string"/>',
            "interface Login {\n  user: string\n  password: string\n}",
            "pw = read_line()\npassword = entered\nprint(entered)\n",
            'if (input.type === "password") { show() }',
            'getPassword("account")',
            "Use the --password option or --password-file.",
            'set up password "reset" links',
            'Pass "verbose=true" to the function',
            '{"pass": "未使用抽象角色", "fail": "没有"}',
            '"password": "contrasenya"',
            "'current_password' => 'mot de passe actuel',",
            "'username' => 'required|string', 'password' => 'required|string',",
            '{ name: "PASS", value: "passed" }',
            'message(CHECK_PASS "all components found")',
            " * @example\n * login({ password: 'harbourlantern' })\n",
            "PermitRootLogin prohibit-password without-password forced-commands-only\n",
            "PASS src/app.test.js\nPASS src/b.test.js\n",
            'the password is "case sensitive"',
        )


class ConversationTest(SanitizeTestCase):
    def test_an_answer_to_a_question_for_a_password_is_one(self) -> None:
        self.assert_removed(
            TYPED,
            "what's the password?\n{}",
            "ann: what's the wifi password?\nbob: {}\n",
            "[10:02] ann: password for jenkins?\n[10:03] bob: it's {}\n",
            "Q: password for the vpn? A: {}",
            "whats the pw for the nas? {}",
        )

    def test_so_is_what_a_sentence_calls_a_password(self) -> None:
        self.assert_removed(
            TYPED,
            "ssh into ann@10.1.2.3, pass {}",
            "ssh ann@box with password {}",
            "ann's password is {}",
            "set the admin pw to {}",
            "u: ann / p: {}",
            'Error: invalid password "{}"',
        )
        self.assert_removed(
            "Tiger!Lily5", "we use {} for all test accounts' passwords", "root:{} on the router", "admin / {}"
        )
        self.assert_removed("Winter2024!", "password changed to {}", "ann@example.org / {}", "guest wifi: {}")
        self.assert_removed("never gonna give", 'Password is still "{}"', 'The passphrase is "{}"')

    def test_an_announced_value_is_a_secret(self) -> None:
        self.assert_removed(
            TOKEN,
            "token expired, new one: {}",
            "I rotated it. New access token below\n{}",
            "can i have the api key?\nann: {}",
            "here you go: {}",
        )
        self.assert_removed(HEX, "Use the following key {} to decrypt the backup.")

    def test_other_answers_and_announcements_stay(self) -> None:
        self.assert_kept(
            "Do you have the password?\nYes, I do.\n",
            "Which hash for the password?\nsha256\n",
            "hashed with password sha512",
            "the password is base64-encoded",
            "see root/app2 and admin/v2",
            f"pubkey: {TOKEN[:20]}+/{TOKEN[:20]}=",
            f"The key of the commit is {HEX}",
            "mailto:gorby%25kremvax@example.com",
        )

    def test_a_known_prefix_names_the_type_of_an_announced_token(self) -> None:
        token = "npm_" + BODY[:36]
        self.assertIn("[REDACTED:npm-token", sanitize_text(f"new token below\n{token}")[0])


class HeaderTest(SanitizeTestCase):
    def test_a_call_sets_the_token_of_a_header(self) -> None:
        for secret in (TOKEN, HEX[:32]):
            self.assert_removed(
                secret,
                'headers.set("X-Api-Key", "{}");',
                "req.setRequestHeader('X-Auth-Token', '{}');",
                'req.Header.Add("X-Auth-Token", "{}")',
                '.addHeader("Ocp-Apim-Subscription-Key", "{}")',
                '.header("X-Api-Key", "{}")',
                'headers.insert("x-goog-api-key", HeaderValue::from_static("{}"));',
                "curl -H 'api-key: {}' https://example.org",
            )
        self.assert_removed(TOKEN, 'req.Header.Set("Authorization", "Bearer "+"{}")')

    def test_other_headers_stay(self) -> None:
        self.assert_kept(
            'headers.set("X-Api-Key", apiKey);',
            f'res.setHeader("ETag", "{HEX[:32]}")',
            f'.header("If-None-Match", "{HEX}")',
            '.header("Idempotency-Key", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed")',
            '.header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")',
            'curl -H "X-Api-Key: $API_KEY" https://example.org',
        )


class ServiceTest(SanitizeTestCase):
    def test_the_name_of_a_service_alone_reveals_its_key(self) -> None:
        self.assert_removed(
            HEX[:32], "datadog: {}", "mailgun {}", "Our datadog is {}, use it", "algolia admin: {}", "'twilio' => '{}',"
        )
        self.assert_removed(TOKEN, "Stripe key is {}", "sendgrid = {}", "For Fastly use {}")
        self.assert_removed(TOKEN, "Here's the Airtable one: {}", "Hetzner cloud: {}")
        self.assert_removed(HEX[:32], "Here is the Mailgun key {}", "cloudflare global key {}")
        self.assert_removed(HEX, "sentry {}")
        self.assert_removed("1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "heroku: {}", "sdk-{}")
        self.assert_removed("81f789a0-5509-4628-912c-4ce179e14989", "postmark {}", "PINECONE {}")

    def test_what_else_follows_its_name_stays(self) -> None:
        self.assert_kept(
            f"Sentry: {HEX[:40]}",
            f"image: sentry@sha256:{HEX}",
            f"notion page {HEX[:32]}",
            f"heroku release {HEX[:40]}",
            "stripe: ^8.222.0",
            "datadog: enabled",
            "Matsumoto <mattn@mail.example.org>\n\n vim:tw=78:ts=8:noet:ft=help:norl",
        )


class AddressTest(SanitizeTestCase):
    def test_a_password_with_signs_is_masked(self) -> None:
        self.assert_removed(
            "pa#ss",
            "ann:{}@db.example.org",
            "postgres://app:{}@db/x",
            r"http://corp\ann:{}@proxy:3128",
        )
        self.assert_removed("ab$cd#ef", "postgres://app:{}@db/x")

    def test_a_sample_in_any_address_stays(self) -> None:
        self.assert_kept("mongodb://username:password@host/db", "see pkg:thing@1.2.3 and acct:ann@example.org")


class ChecksumTest(SanitizeTestCase):
    def test_lines_of_checksums_name_no_secret(self) -> None:
        self.assert_kept(
            f"{HEX[:32]}  usr/share/man/man5/apt_auth.conf.5.gz\n{HEX[32:]}  usr/share/doc/token.md\n{HEX[:32]}  a\n",
            f"pip/version.py,sha256=qaN-fw_{BODY[:32]},180",
            "apt\tlibpasswd\t2.40-2\napt\tbinutils-x86-64-linux-gnu\t2.40-2\n",
        )

    def test_public_keys_and_certificates_are_no_secrets(self) -> None:
        body = base64.b64encode(BODY.encode() * 3).decode()
        self.assert_kept(
            f"key: MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA{body}",
            f'key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE{body}"',
            f"certificate-key: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1{body}",
            f"auth_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{body}",
            f"key: {HEX}  # of the cache",
        )

    def test_lists_sentences_and_encrypted_elements_are_no_secrets(self) -> None:
        self.assert_kept(
            'enum: [\n  "auth",\n  "BSD-2-Clause-Views",\n  "BSD-3-Clause-HP",\n]',
            "const names = [\n  AUTH_TOKEN,\n  GEMMA_4_26B_A4B_IT_MODEL,\n];",
            '"pass": "未指定影響文字間距的帶有「!important」的內聯樣式"',
            f"<KeyName>a.bin</KeyName>\n<CipherData><CipherValue>{TOKEN}</CipherValue></CipherData>",
            '<a href="#pbkdf2paramssalt"><code>pbkdf2Params.salt</code></a>',
            "https://example.org/view?usp=sharing&resourcekey=0-LtPTzR1woh-rxGtfPzjjfg",
            "https://example.org/pages?cursor=cD0yMDI0LTAxLTAxVDEwJTNBMDA%3D",
            "{ password: 'secret-2-levels' }",
            "{ password: 'secret123' }",
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "-----BEGIN PRIVATE KEY-----\nXXXX\nXXXX\n-----END PRIVATE KEY-----",
        )

    def test_a_private_key_in_base64_is_one(self) -> None:
        body = base64.b64encode(BODY.encode() * 3).decode()
        secret = f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ{body}"
        self.assertNotIn(secret, sanitize_text(f"private_key: {secret}")[0])
