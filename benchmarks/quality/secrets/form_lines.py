"""The forms in which people write secrets, by what they are of; ``forms`` fills them with values."""

from __future__ import annotations

# Each line is the kind of value (``forms._KINDS``), a bar, and the form. ``{}`` is the value; ``⏎`` is a line break.
FORMS = {
    "dash": """
t|API key - {}
t|Access token – {}
t|Our staging API token — {}
t|* Secret key - `{}`
w|Password - {}
w|- admin password – {}
t|client secret - {} (rotate in May)
h|auth token -- {}
w|db password - {}, user is reporting
t|GitLab token - "{}"
""",
    "arrow": """
t|API key → {}
t|token ⇒ {}
w|password -> {}
w|root password => {}
t|api token ---> {}
h|SECRET → `{}`
t|client secret ==> {}
w|Wifi password » {}
t|access key ≫ {}
t|bot token ➜ {}
""",
    "bracket": """
t|API key (staging): {}
t|API token (expires 2027-01-01): {}
w|password (temporary): {}
t|api key [prod] = {}
t|access token (read only) - {}
w|Password (admin user): `{}`
t|client secret (v2): "{}"
t|the API key ({}) is in the vault
w|log in as root (password: {})
w|connect with the password ({}) you got
t|token [{}]
t|secret key <{}>
t|API key: [{}]
t|use token ({}) for CI
""",
    "table": """
t|| API token | {} |
t|| `API_KEY` | `{}` | production |
w|| Password | {} |
w|| admin | password | `{}` |
t|| **Secret key** | {} | do not share |
h|| access_token  |  {}  | 2026-01-01 |
t|API token | {}
w|user     | password⏎---------+---------⏎ report   | {}
t|| name | api key |⏎|---|---|⏎| staging | {} |
w|| host | user | password |⏎|------|------|----------|⏎| db1 | app | {} |
t|<tr><td>API key</td><td>{}</td></tr>
w|<td>Password</td>⏎<td><code>{}</code></td>
t|API key\t{}
w|host,user,password⏎db1,app,{}
t|id,name,api_token⏎7,build,{}
""",
    "element": """
t|<secret>{{{}}}</secret>
t|<apiToken>{{{}}}</apiToken>
b|<password>{{{}}}</password>
w|<password>{}</password>
t|<property name="api.key">{}</property>
w|<entry key="db.password">{}</entry>
w|<add key="DbPassword" value="{}" />
t|<string name="api_secret">{}</string>
b|<hudson.util.Secret>{{{}}}</hudson.util.Secret>
t|<key>ApiToken</key>⏎<string>{}</string>
w|<password><![CDATA[{}]]></password>
t|<config:token xml:space="preserve">{}</config:token>
""",
    "repeated": """
t|export API_KEY={0}⏎curl https://api.example.org/v1/items/{0}
t|the token: {0}. I tried {0} again and it failed
w|password: {0}⏎> {0}⏎login ok
t|api_key="{0}"⏎# checked: {0}
t|{0}⏎That was the API key: {0}
h|auth_token={0} and then GET /hook/{0}/fire
w|My password is {0}⏎ok, {0} works
t|secret_key: {0}⏎diff --git a/x b/x⏎-{0}⏎+none
""",
    "block scalar": """
t|api_key: |⏎  {}
t|token: >-⏎  {}⏎user: ann
w|password: |-⏎    {}
t|  client_secret: >⏎    {}⏎  region: eu
t|stringData:⏎  token: |+⏎    {}
h|secret: |2-⏎  {}
t|API_TOKEN: # the key⏎  {}
t|password:⏎  value: {}
t|API key:⏎{}
t|Access token:⏎⏎    {}
t|API key:⏎```⏎{}⏎```
w|Password:⏎`{}`
""",
    "cookie": """
h|Cookie: sessionid={}; theme=dark
t|Set-Cookie: PHPSESSID={}; path=/; HttpOnly
t|Cookie: connect.sid=s%3A{}.x; lang=en
h|curl -b "sessionid={}" https://shop.example
h|JSESSIONID={}
t|Cookie: csrftoken=abc; session={}
t|curl --cookie 'auth_session={}' https://a.example
t|document.cookie = "laravel_session={}"
t|Cookie: _gitlab_session={}
t|requests.get(url, cookies={{"sessionid": "{}"}})
h|ASP.NET_SessionId={}
t|Cookie: __Secure-next-auth.session-token={}
t|cookie: remember_token={}; a=b
""",
    "framework key": """
s|SECRET_KEY = '{}'
s|SECRET_KEY = "django-insecure-{}"
s|SECRET_KEY='{}'
s|define('AUTH_KEY', '{}');
s|define( 'SECURE_AUTH_SALT', '{}' );
s|define('NONCE_SALT',       '{}');
s|define("LOGGED_IN_KEY", "{}");
b|APP_KEY=base64:{}
h|secret_key_base: {}
s|app.secret_key = b'{}'
s|app.config['SECRET_KEY'] = '{}'
t|NEXTAUTH_SECRET={}
b|config :app, AppWeb.Endpoint, secret_key_base: "{}"
s|AIRFLOW__CORE__FERNET_KEY={}
s|$cfg['blowfish_secret'] = '{}';
s|SALT = "{}"
h|RAILS_MASTER_KEY={}
""",
    "user and password": """
w|login: admin / {}
w|user / password: admin / {}
w|creds: admin:{}
w|credentials: root / {}
w|user/pass admin/{}
w|username: ann, password: {}
w|credentials are ann / {}
w|login with ann@example.org / {}
w|Login: ann⏎Pass: {}
w|creds -> deploy:{}
w|u: admin p: {}
w|user=admin pass={}
w|admin credentials (admin/{})
w|log in as admin with {}
w|Credentials: `admin` / `{}`
w|ssh root@10.0.0.5 (pw {})
w|usr: ann⏎pwd: {}
w|the login is ann and the pw is {}
w|user ann password {}
""",
    "languages": """
w|La contraseña es {}
w|contraseña: {}
w|la clave es {}
w|Das Passwort ist {}
w|Passwort lautet {}
w|Kennwort: {}
w|Das Kennwort für den Server ist {}
w|Le mot de passe est {}
w|mot de passe : {}
w|mdp : {}
w|A senha é {}
w|senha do banco: {}
w|Пароль: {}
w|пароль от базы {}
w|Пароль такой: {}
w|密码是 {}
w|密码：{}
w|密码为{}
w|数据库密码是{}，请保密
w|パスワードは {} です
w|パスワードは「{}」です
w|パスワード：{}
w|비밀번호는 {} 입니다
w|비밀번호: {}
w|la password è {}
w|Het wachtwoord is {}
w|Hasło to {}
w|hasło: {}
w|Şifre: {}
w|parola: {}
t|la clave de API es {}
t|API-Schlüssel: {}
t|Der API-Schlüssel lautet {}
t|clé API : {}
t|la clé d'API est {}
t|chave da API: {}
t|API 密钥：{}
t|访问令牌：{}
t|API キーは {} です
t|токен: {}
t|ключ API: {}
t|API-Token ist {}
w|Heslo: {}
w|Lösenord: {}
w|Adgangskode: {}
w|mật khẩu: {}
""",
    "letters only": """
l|password: {}
l|API_TOKEN={}
l|client_secret = "{}"
l|secret_key: '{}'
l|api_key={}
l|export AUTH_TOKEN={}
l|"accessToken": "{}"
m|APP_PASSWORD={}
m|smtp password: {}
m|GMAIL_APP_PASSWORD="{}"
n|api_key: {}
n|token = '{}'
""",
    "words with digits": """
d|API_TOKEN={}
d|client_secret: {}
d|"secret_key": "{}"
d|password = '{}'
d|api_key="{}"
d|auth_token: {}
d|export SECRET_TOKEN={}
d|JWT_SECRET={}
d|access_key = {}
""",
    "address": """
r|postgres://app:{}@db.example.org:5432/app
r|mysql://root:{}@127.0.0.1/shop
r|amqp://guest:{}@mq.internal:5672/
r|redis://:{}@cache:6379/0
r|DATABASE_URL="postgresql://app:{}@db/app?sslmode=require"
r|mongodb+srv://ann:{}@cluster0.example.net/test
r|git clone https://ann:{}@git.example.org/team/app.git
r|smtp://mailer:{}@mail.example.org:587
r|dsn: mssql://sa:{}@sql.example.org/master
t|https://{}@github.com/team/app.git
t|https://oauth2:{}@gitlab.example.org/team/app.git
t|https://api.example.org/v1?api_key={}
t|https://example.org/hook?token={}&x=1
t|wss://example.org/live?access_token={}
t|https://example.org/cb#access_token={}&token_type=bearer
t|//registry.example.org/:_authToken={}
""",
    "command line": """
w|redis-cli -h cache -a {} ping
w|redis-cli -a '{}' --no-auth-warning
w|sqlcmd -S db -U sa -P '{}'
w|sqlcmd -S tcp:db -U sa -P {} -Q "select 1"
w|echo '{}' | sudo -S apt update
w|echo {} | sudo -S systemctl restart app
w|mysql -u root -p{} shop
w|mysqldump --user=root --password={} shop
w|PGPASSWORD={} psql -h db -U app
w|PGPASSWORD='{}' pg_dump app
w|sshpass -p {} ssh root@host
w|sshpass -p '{}' scp a b:
w|docker login -u ann -p {} registry.example.org
w|echo "{}" | docker login -u ann --password-stdin
w|curl -u admin:{} https://jenkins.example.org
w|curl --user 'admin:{}' https://a.example
w|wget --user=ann --password={} https://a.example/f
w|ldapsearch -x -D cn=admin -w {} -b dc=x
w|mongo -u root -p {} --authenticationDatabase admin
w|mongosh --username root --password {}
w|net use Z: \\\\srv\\share {} /user:ann
w|smbclient //srv/share -U ann%{}
w|az login -u ann@example.org -p {}
t|gh auth login --with-token <<< {}
t|vault login {}
t|helm upgrade app --set auth.token={}
t|aws configure set aws_secret_access_key {}
t|npm config set //registry.example.org/:_authToken {}
t|curl -H "X-API-Key: {}" https://a.example
t|curl -H 'PRIVATE-TOKEN: {}' https://a.example
t|http POST a.example X-Auth-Token:{}
t|doctl auth init -t {}
t|export TOKEN={}
t|set API_KEY={}
t|$env:API_KEY = "{}"
t|setx API_TOKEN "{}"
w|openssl enc -aes-256-cbc -k {} -in a
w|openssl rsa -passin pass:{} -in key.pem
w|zip -P {} out.zip a
w|7z x -p{} a.7z
w|keytool -list -storepass {}
w|ansible-playbook x.yml -e "ansible_become_pass={}"
w|htpasswd -b .htpasswd ann {}
w|usermod --password {} ann
w|echo "ann:{}" | chpasswd
w|restic -r x --password-command "echo {}"
t|./deploy.sh --api-key {}
t|./deploy --token={}
t|terraform apply -var="db_token={}"
w|rabbitmqctl add_user ann {}
w|kinit ann <<< '{}'
w|lftp -u ann,{} ftp.example.org
""",
    "call": """
b|Fernet('{}')
b|f = Fernet(b"{}")
t|client = Client(api_key="{}")
t|new Client("{}", {{ apiKey: "{}" }})
t|stripe.setApiKey("{}")
t|setToken('{}')
t|.withToken("{}")
w|conn.login("ann", "{}")
w|client.connect("host", username="ann", password="{}")
w|new NetworkCredential("ann", "{}")
w|auth=("ann", "{}")
w|HTTPBasicAuth('ann', '{}')
t|jwt.sign(payload, '{}')
t|jwt.encode(data, "{}", algorithm="HS256")
t|hmac.new(b"{}", body, sha256)
t|session({{ secret: '{}' }})
t|os.environ["API_KEY"] = "{}"
t|process.env.API_TOKEN = '{}'
t|os.Setenv("API_TOKEN", "{}")
t|System.setProperty("api.token", "{}")
t|req.Header.Set("X-Api-Key", "{}")
t|headers.append('Authorization', 'Token {}')
t|request.setRequestHeader("X-Auth-Token", "{}")
w|db.createUser({{user: "a", pwd: "{}"}})
w|ALTER USER app WITH PASSWORD '{}';
w|CREATE USER 'a'@'%' IDENTIFIED BY '{}';
w|SET PASSWORD FOR 'root'@'localhost' = PASSWORD('{}');
t|getenv("API_KEY", "{}")
t|os.getenv('SECRET_TOKEN') or '{}'
t|process.env.JWT_SECRET || '{}'
t|ENV['API_TOKEN'] || "{}"
t|cipher = AES.new('{}', AES.MODE_ECB)
t|CryptoJS.AES.encrypt(text, "{}")
t|new SecretKeySpec("{}".getBytes(), "AES")
t|Authorization: ApiKey {}
t|Authorization: Token token="{}"
t|Authorization: {}
""",
    "chat": """
w|hey, the new password for staging is {}
w|pw: {}
w|pass is {} btw
w|the wifi pass: {}
w|try {} as the password
w|its password should be {}
w|new pw is `{}` please change it
w|i set the root password to {}
w|password changed to {}
w|reset the password to "{}"
w|I use {} as my password
w|The password you need is {}.
w|"password" should be "{}"
t|use this token: {}
t|here is the api key {}
t|my api key is {}, don't share
t|the key for the API is {}
t|token = {} (valid until friday)
t|put {} in API_KEY
t|set API_TOKEN to {}
t|API_KEY should be set to {}
t|your token is: {}
t|got a token back: {}
t|Bearer token: {}
t|sent you the secret: {}
t|I generated a new client secret, it's {}
t|the webhook secret equals {}
t|user: here's the key⏎user: {}⏎assistant: thanks, I stored the API key {}
w|PIN/password: {}
w|passphrase for the key: {}
w|password="{}" # temporary
t|API Key: **{}**
t|API Key: __{}__
t|API Key: <code>{}</code>
t|- [ ] rotate token `{}`
t|> token: {}
w|Q: password? A: {}
w|password ... {}
w|Password........: {}
""",
    "configuration": """
t|api_key {}
t|apiKey: "{}"
t|"apiKey":"{}"
t|'api-key' => '{}',
t|api.key={}
t|:api_key => "{}"
t|api_key := "{}"
t|let apiKey: String = "{}"
t|const char* API_KEY = "{}";
t|#define API_TOKEN "{}"
t|static final String TOKEN = "{}";
t|var token = `{}`
t|API_KEY="${{API_KEY:-{}}}"
t|ENV API_TOKEN {}
t|ARG TOKEN={}
t|- name: API_TOKEN⏎  value: {}
t|- API_TOKEN={}
t|{{"name": "API_TOKEN", "value": "{}"}}
t|{{"key": "api_token", "secret": true, "value": "{}"}}
t|[[inputs.http]]⏎  token = "{}"
t|variable "token" {{⏎  default = "{}"⏎}}
t|machine api.example.org login ann password {}
t|*:*:*:app:{}
w|spring.datasource.password={}
w|requirepass {}
w|bind_dn_password = "{}"
w|wpa_passphrase={}
w|psk="{}"
w|PASS={}
w|MYSQL_ROOT_PASSWORD: {}
w|"password" : "{}"
w|password {}
w|db.pass: '{}'
w|jdbc:mysql://db/x?user=ann&password={}
w|Server=db;Database=x;User Id=sa;Password={};
w|host=db user=ann password={} dbname=x
w|smtp_pass: {}
w|AUTH_PASSWORD = {}
w|ansible_ssh_pass={}
w|enable secret {}
t|x-api-key: {}
t|x-vault-token: {}
t|apikey = {}
t|aws_session_token={}
t|signing_secret: {}
t|encryption_key: {}
t|hmac_key={}
t|webhook_secret={}
t|licenseKey: {}
t|deploy_key: "{}"
t|refresh_token={}
t|{{"error": "invalid token {}"}}
t|"token\\": \\"{}\\""
u|api_key: {}
u|auth_token={}
u|X-API-Key: {}
h|app_secret: {}
h|appid=1a2b&secret={}
h|"secret": "{}"
""",
}
