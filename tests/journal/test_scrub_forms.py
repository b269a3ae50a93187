"""How languages, formats, shells and Spark print a setting: no form leaks it, and ordinary text stays readable."""

from __future__ import annotations

import base64
import json
import time

import pytest

from airflow_recovery.journal import scrub
from airflow_recovery.journal.scrub import MASK, scrubbed

SECRET = "Zq7hunterX2"

PRINTED = {
    "scala map": "Map(spark.hadoop.fs.s3a.secret.key -> §, spark.app.name -> jobs)",
    "scala arrow": "password -> §",
    "scala map, first": "Map(password -> §, user -> ann)",
    "scala map, unicode arrow": "password → §",
    "scala tuple": "(spark.hadoop.fs.s3a.secret.key,§)",
    "scala tuples": "ArrayBuffer((user,ann), (password,§), (url,x))",
    "scala tuple, space": "(password, §)",
    "scala Some": "Map(password -> Some(§))",
    "scala Some of a field": "password = Some(§)",
    "scala case class by name": "Config(user = ann, password = §)",
    "scala quoted": '"password" -> "§"',
    "scala option": '.option("password", "§")',
    "scala option, single": ".option('password', '§')",
    "scala set": '.set("spark.hadoop.fs.s3a.secret.key", "§")',
    "scala config": '.config("fs.s3a.secret.key", "§")',
    "scala setting": 'conf.set("spark.ssl.keyPassword", "§")',
    "java map": "{user=ann, password=§}",
    "java properties, escaped": "fs.s3a.secret.key\\=§",
    "java properties, space": "password §",
    "java properties, colon": "db.password : §",
    "java put": 'properties.put("password", "§");',
    "java setProperty": 'properties.setProperty("javax.net.ssl.trustStorePassword", "§")',
    "java builder": "Credentials[user=ann, password=§]",
    "java record": "Login[name=ann, secretKey=§]",
    "java setter": 'dataSource.setPassword("§")',
    "java option -D": "java -Djavax.net.ssl.keyStorePassword=§ -jar x",
    "java option -D quoted": "-Ddb.password='§'",
    "java entry": "AbstractMap.SimpleEntry(password=§)",
    "spark --conf": "spark-submit --conf spark.hadoop.fs.s3a.secret.key=§ a.py",
    "spark --conf quoted": '--conf "spark.hadoop.fs.s3a.secret.key=§"',
    "spark --conf list": "['--conf', 'spark.hadoop.fs.s3a.secret.key=§']",
    "spark -c": "-c spark.hadoop.fs.s3a.secret.key=§",
    "spark-defaults": "spark.hadoop.fs.s3a.secret.key    §",
    "spark-defaults, tab": "spark.hadoop.fs.s3a.secret.key\t§",
    "spark SET": "SET spark.hadoop.fs.s3a.secret.key=§",
    "spark show": "|spark.hadoop.fs.s3a.secret.key|§|",
    "spark show, padded": "|                  password|   §|",
    "spark show, two lines": "+--------+-----+\n|     key|value|\n+--------+-----+\n|password|§|\n+--------+-----+",
    "spark Row": "Row(key='password', value='§')",
    "spark Row, typed": "Row(password='§')",
    "spark executor env": "spark.executorEnv.DB_PASSWORD=§",
    "spark env in yarn": "spark.yarn.appMasterEnv.AWS_SECRET_ACCESS_KEY=§",
    "spark options of a plan": "SaveIntoDataSourceCommand Map(url -> jdbc:x, password -> §), Append",
    "spark list of tuples": "[('spark.app.name', 'x'), ('spark.hadoop.fs.s3a.secret.key', '§')]",
    "sql OPTIONS": 'CREATE TABLE t USING jdbc OPTIONS (url "x", password "§")',
    "sql OPTIONS, single": "OPTIONS (password '§')",
    "sql OPTIONS, quoted": "OPTIONS ('password' '§')",
    "sql OPTIONS, equal": "OPTIONS ('password'='§')",
    "sql TBLPROPERTIES": "TBLPROPERTIES ('secret.key' = '§')",
    "sql WITH": "WITH (password = '§')",
    "sql IDENTIFIED BY": "CREATE USER ann IDENTIFIED BY '§'",
    "sql IDENTIFIED BY, double": 'ALTER USER ann IDENTIFIED BY "§"',
    "sql IDENTIFIED BY, bare": "ALTER USER ann IDENTIFIED BY §",
    "sql IDENTIFIED WITH": "IDENTIFIED WITH mysql_native_password BY '§'",
    "sql PASSWORD": "ALTER ROLE ann WITH PASSWORD '§'",
    "sql ENCRYPTED PASSWORD": "CREATE ROLE ann LOGIN ENCRYPTED PASSWORD '§'",
    "sql SET PASSWORD FOR": "SET PASSWORD FOR 'ann'@'%' = '§'",
    "sql SET PASSWORD": "SET PASSWORD = PASSWORD('§')",
    "sql credentials of COPY": "COPY INTO t FROM 's3://b' CREDENTIALS=(AWS_KEY_ID='x' AWS_SECRET_KEY='§')",
    "sql redshift credentials": "CREDENTIALS 'aws_access_key_id=AKIAIOSFODNN7EXAMPLE;aws_secret_access_key=§'",
    "sql SECRET_KEY": "COPY t FROM 's3://b' SECRET_ACCESS_KEY '§'",
    "sql CREATE SECRET": "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET '§')",
    "sql connection": "OPTIONS (host 'h', user 'ann', PASSWORD '§')",
    "sql map()": "SELECT map('password', '§')",
    "sql named_struct": "named_struct('password', '§', 'n', 1)",
    "json": '{"password": "§"}',
    "json, no space": '{"password":"§"}',
    "json in json": '{\\"password\\":\\"§\\"}',
    "json in json in json": '\\\\\\"password\\\\\\": \\\\\\"§\\\\\\"',
    "json, escaped unicode": "{\\u0022password\\u0022:\\u0022§\\u0022}",
    "json of names and values": '{"name": "DB_PASSWORD", "value": "§"}',
    "json of keys and values": '{"key": "fs.s3a.secret.key", "value": "§"}',
    "json of Keys and Values": '{"Key":"secret.key","Value":"§"}',
    "json of values and names": '{"value": "§", "name": "DB_PASSWORD"}',
    "json array of pairs": '[["spark.app.name","x"],["spark.hadoop.fs.s3a.secret.key","§"]]',
    "json pretty": '{\n  "password":\n    "§"\n}',
    "json array value": '{"passwords": ["§"]}',
    "json array of one": '{"password": ["§"]}',
    "yaml": "password: §",
    "yaml quoted": "password: '§'",
    "yaml flow": "{user: ann, password: §}",
    "yaml block": "password: |\n  §\nuser: ann",
    "yaml block folded": "password: >-\n  §\nuser: ann",
    "yaml block, indented": "db:\n  password: |\n    §\n  user: ann",
    "yaml next line": "password:\n  §\n",
    "yaml env of kubernetes": "- name: DB_PASSWORD\n  value: §",
    "yaml env, quoted": '- name: DB_PASSWORD\n  value: "§"',
    "yaml tag": "password: !!str §",
    "yaml anchor": "password: &pw §",
    "yaml key quoted": '"password": §',
    "toml": 'password = "§"',
    "toml triple": 'password = """§"""',
    "ini": "password=§",
    "hcl": 'password = "§"',
    "xml attribute": '<db user="ann" password="§"/>',
    "xml element": "<password>§</password>",
    "xml element, prefix": "<x:dbPassword>§</x:dbPassword>",
    "xml property": "<property><name>fs.s3a.secret.key</name><value>§</value></property>",
    "xml property, lines": "<property>\n  <name>fs.s3a.secret.key</name>\n  <value>§</value>\n</property>",
    "xml entry": '<entry key="password">§</entry>',
    "xml property, attributes": '<property name="password" value="§"/>',
    "python dict": "{'password': '§', 'n': 1}",
    "python dict, bytes": "{b'password': b'§'}",
    "python keyword": "connect(user='ann', password='§')",
    "python f": "password=f'§'",
    "python raw": "password=r'§'",
    "python bytes": "password=b'§'",
    "python tuple": "('password', '§')",
    "python list of pairs": "[('password', '§')]",
    "python dataclass": "Login(user='ann', password='§')",
    "python namedtuple": "Setting(name='password', value='§')",
    "python items": "dict_items([('user', 'ann'), ('password', '§')])",
    "python environ": "environ({'PGPASSWORD': '§'})",
    "python setitem": "os.environ['PGPASSWORD'] = '§'",
    "python setitem, double": 'conf["fs.s3a.secret.key"] = "§"',
    "python setdefault": "os.environ.setdefault('PGPASSWORD', '§')",
    "python pprint": "{'password': \n  '§'}",
    "python SecretStr": "password=SecretStr('§')",
    "shell export": "export DB_PASSWORD=§",
    "shell export, quoted": "export DB_PASSWORD='§'",
    "shell declare": 'declare -x DB_PASSWORD="§"',
    "shell set -x": "+ DB_PASSWORD=§ run",
    "shell ANSI": "DB_PASSWORD=$'§'",
    "fish": "set -x DB_PASSWORD §",
    "csh": "setenv DB_PASSWORD §",
    "powershell": '$env:DB_PASSWORD = "§"',
    "docker -e": "docker run -e DB_PASSWORD=§ x",
    "dockerfile ENV": "ENV DB_PASSWORD §",
    "command --password x": "run --password §",
    "command --password=x": "run --password=§",
    "command --password quoted": "run --password '§'",
    "command --password list": "['run', '--password', '§']",
    "command json list": '["run","--password","§"]',
    "command -password": "run -password §",
    "command mysql -p": "mysql -uann -p§ db",
    "command -p": "sshpass -p § ssh h",
    "command curl -u": "curl -u ann:§ https://h",
    "command curl --user": "curl --user ann:§ https://h",
    "command curl header": "curl -H 'X-Api-Key: §' https://h",
    "command snake": "run --db_password §",
    "jdbc ?": "jdbc:postgresql://h/d?user=ann&password=§",
    "jdbc ;": "jdbc:sqlserver://h;user=ann;password=§;encrypt=true",
    "jdbc ; space": "jdbc:sqlserver://h;User Id=ann;Password = §;",
    "jdbc braces": "jdbc:sqlserver://h;password={§;x};a=b",
    "jdbc mysql address": "jdbc:mysql://address=(host=h)(user=ann)(password=§)/d",
    "odbc": "Driver=x;Server=h;UID=ann;PWD=§",
    "dsn": "host=h user=ann password=§ dbname=d",
    "url": "https://ann:§@h/x",
    "url, at in the password": "https://ann:a@§@h/x",
    "url, slash": "https://ann:a/§@h/x",
    "s3 url": "s3a://AKIAIOSFODNN7EXAMPLE:§@bucket/x",
    "sas": "https://a.blob.core.windows.net/c?sv=2024&sig=§%3D&se=2026",
    "sas, first": "https://a.blob.core.windows.net/c?sig=§%3D",
    "presigned": "https://b.s3/k?X-Amz-Credential=a&X-Amz-Signature=§",
    "presigned, token": "https://b.s3/k?X-Amz-Security-Token=§",
    "presigned, google": "https://storage.googleapis.com/b/k?X-Goog-Signature=§",
    "cloudfront": "https://c/k?Policy=x&Signature=§&Key-Pair-Id=y",
    "access_token": "https://h/x?access_token=§",
    "api key in query": "https://h/x?api_key=§",
    "apikey in query": "https://h/x?apikey=§",
    "url, encoded": "https%3A%2F%2Fh%2Fx%3Fpassword%3D§",
    "form": "grant_type=password&client_secret=§",
    "authorization basic": "Authorization: Basic §==",
    "authorization bearer": "Authorization: Bearer §",
    "authorization other": "Authorization: Token §",
    "authorization aws": "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/x, Signature=§",
    "authorization in a dict": "{'Authorization': 'Basic §=='}",
    "authorization, raw": "{'Authorization': '§'}",
    "x-api-key": "x-api-key: §",
    "x-auth-token": "X-Auth-Token: §",
    "x-vault-token": "X-Vault-Token: §",
    "proxy": "Proxy-Authorization: Basic §==",
    "private_token": "PRIVATE-TOKEN: §",
    "table, columns": "password        §",
    "table, dots": "password ........ §",
    "table, psql": " password | §",
    "table, markdown": "| password | § |",
    "table, box": "│ password │ § │",
    "csv": "password,§",
    "tsv": "password\t§",
    "log, is": "password is §",
    "log, is quoted": "the password is '§'",
    "log, set to": "spark.hadoop.fs.s3a.secret.key set to §",
    "log, quoted is": "'password' is '§'",
    "log, was": 'secret key was "§"',
    "log, backticks": "`password` = `§`",
    "log, double equal": "password==§",
    "log, walrus": "password := §",
    "log, brackets": "password=[§]",
    "log, parens": "password(§)",
    "log, angle": "password=<§>",
    "log, curly": "password={§}",
    "log, quoted value": "value of 'password': '§'",
    "hive set": "hive.metastore.password=§",
    "terraform": '+ password = "§"',
    "diff": "-password: §",
    "table of columns, show": "+----+--------+\n|user|password|\n+----+--------+\n| ann|§|\n+----+--------+",
    "table of columns, several rows": "| n | db_password | x |\n|---|---|---|\n| 1 | § | a |\n| 2 | § | b |",
    "spark show, vertical": "-RECORD 0------\n user     | ann \n password | § ",
    "spark show, vertical, a setting": "-RECORD 0------\n key   | fs.s3a.secret.key \n value | § ",
    "scala val": 'val password: String = "§"',
    "python typed": "token: str = '§'",
    "kotlin pair": 'mapOf("user" to "ann", "password" to "§")',
    "python auth": "requests.get(url, auth=('ann', '§'))",
    "java credentials": 'new BasicAWSCredentials("id", "§")',
    "psql asks": "Password for user ann: §",
    "a scheme alone": "tried Bearer §",
    "another scheme alone": "tried Basic §",
    "a webhook of Slack": "https://hooks.slack.com/services/T0/B0/§",
    "in colours": "\x1b[32mpassword\x1b[0m=\x1b[1m§\x1b[0m",
}
"""Where the secret stands, as §."""

OF_A_WORD = (
    "spark.hadoop.fs.s3a.secret.key    hunter",
    "| password | hunter |",
    "run -password hunter -v",
    "['run', '--password', 'hunter', '-v']",
    "setenv DB_PASSWORD hunter",
    "ENV DB_PASSWORD hunter",
    "IDENTIFIED BY 'hunter'",
    "password 'hunter'",
    "Map(password -> hunter)",
    "(password,hunter)",
    "<password>hunter</password>",
    "Authorization: Bearer hunter",
    "machine h login ann password hunter",
)
"""These forms are known by what stands around, though the secret is a word like others."""

ORDINARY = (
    "SELECT user, password, token FROM accounts WHERE secret IS NOT NULL",
    "StructType([StructField('password', StringType(), True), StructField('n', LongType(), True)])",
    "root\n |-- password: string (nullable = true)\n |-- id: long (nullable = true)",
    "password string, id bigint, token int",
    'frame.select("password", "user", "url")',
    "columns ['user', 'password', 'url'] are missing",
    "|  user|password|",
    "+----+--------+\n|user|password|\n+----+--------+\n+----+--------+",
    "the secret is missing",
    "the password is required; the token is expired",
    "password is not set",
    'secrets "spark-ui" not found',
    "token expired 3 hours ago",
    "a -> b -> c",
    "Map(url -> jdbc:postgresql://h/d, dbtable -> t)",
    "Map(spark.app.name -> jobs, spark.master -> local[2])",
    "(spark.app.name,jobs)",
    "key -> value",
    "('key', 'value')",
    "{'key': 'day', 'value': 3}",
    "partition_key, 3 files",
    "no password given",
    'Password authentication failed for user "ann"',
    "FATAL: password authentication failed for user 'ann'",
    "Access denied for user 'ann'@'h' (using password: YES)",
    "IDENTIFIED columns by name",
    "authorization: denied",
    "Authorization failed",
    "http://h:80/a@b",
    "s3://lake/x@1/part-0",
    "mail ann@h.org: 3 rows",
    "12:30:00 a@b",
    "http://[::1]:8080/x",
    "docker run -u 1000:1000 x",
    "ps -u root",
    "git log -p",
    "mkdir -p /x",
    "mysql client is missing",
    "password=null",
    "password=None",
    "secret: true",
    "token: null",
    "primary key (id)",
    "foreign key (route) references routes(id)",
    "sort key is day",
    "unique key 12345678",
    "spark.sql.shuffle.partitions  200",
    "spark.hadoop.fs.s3a.endpoint  http://minio:9000",
    "<name>fs.s3a.endpoint</name><value>http://h</value>",
    "<token/>",
    "<password></password>",
    "lexical analysis of 'SELECT' at line 1",
    "env: prod",
    "ENV PATH /usr/bin",
    "export PATH=/usr/bin",
    "--conf spark.executor.memory=4g",
    "| id | day |\n|----|-----|\n| 1  | 2026-01-01 |",
    "tokens | 12",
    "max_tokens | 512",
    "passwords 12",
    "key=part-00000-6f1c2a",
    "signature of the function: f(x: int) -> str",
    "def f(n: int) -> None",
    "pwd is /opt/airflow",
    "sig_figs=3",
    "design: v2",
    "[Stage 3:> (0 + 2) / 8]",
    "Failed to find data source: x",
    "the commit is dag/run/group/region/3",
    "by_route@2 -> report@1: 12 rows",
    "run scheduled__2026-01-01T00:00:00+00:00",
    "name: report, value: 3",
    '{"name": "rows", "value": "12"}',
    "accounts.token_count > 3",
    "the api key of a user",
    "access keys are rotated",
    "the secret key must be set",
)

TOO_MUCH = {
    "token -> partition": "token -> ***",
    "the rows are identified by id": "the rows are identified by ***",
}
"""Ordinary text that is taken for a secret: these words have the form of one."""


def printed(form: str, secret: str = SECRET) -> str:
    return PRINTED[form].replace("§", secret)


def test_fault_342_no_form_leaks() -> None:
    assert len(PRINTED) > 100
    assert {form: text for form in PRINTED if SECRET in (text := scrubbed(printed(form)))} == {}


@pytest.mark.parametrize("text", OF_A_WORD)
def test_fault_342_a_secret_that_is_a_word_is_masked(text: str) -> None:
    assert "hunter" not in scrubbed(text)


def test_fault_342_no_form_leaks_within_other_text() -> None:
    """As a line of a traceback, of a log, and as a string of a JSON document in a JSON document."""
    for form in PRINTED:
        text = printed(form)
        assert SECRET not in scrubbed(f"java.lang.IllegalStateException: 12 rows:\n{text}\n\tat a.b.C(C.java:1)"), form
        if "\\" not in text and "\n" not in text:
            assert SECRET not in scrubbed(json.dumps({"said": text})), form


def test_what_was_masked_once_is_not_masked_again() -> None:
    for form in PRINTED:
        clean = scrubbed(printed(form))
        assert MASK in clean
        assert SECRET not in scrubbed(clean)


def test_fault_342_what_stands_beside_a_setting_stays() -> None:
    for text, clean in (
        (f"Map(password -> {SECRET}, user -> ann)", "Map(password -> ***, user -> ann)"),
        (f"[('password', '{SECRET}'), ('n', '3')]", "[('password', '***'), ('n', '3')]"),
        (f"|password|{SECRET}|\n|user|ann|", "|password|***|\n|user|ann|"),
        (f"OPTIONS (password '{SECRET}', url 'x')", "OPTIONS (password '***', url 'x')"),
        (f"export DB_PASSWORD={SECRET} N=3", "export DB_PASSWORD=*** N=3"),
        (f"password: |\n  {SECRET}\nuser: ann", "password: |\n  ***\nuser: ann"),
    ):
        assert scrubbed(text) == clean


def test_a_header_of_basic_authentication_is_masked() -> None:
    value = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert scrubbed(f"Authorization: Basic {value}") == "Authorization: Basic ***"


def test_fault_342_ordinary_text_stays_readable() -> None:
    assert {text: clean for text in ORDINARY if (clean := scrubbed(text)) != text} == {}


@pytest.mark.parametrize("text", TOO_MUCH)
def test_what_is_masked_for_nothing_is_listed(text: str) -> None:
    assert scrubbed(text) == TOO_MUCH[text]


@pytest.mark.parametrize(
    "unit",
    [
        "(password,",
        "| password |",
        "mysql -p",
        "-u a",
        "<password>",
        "password ",
        'value": "',
        "password=[",
        "x|password|\n",
    ],
)
def test_a_long_text_is_read_in_time_that_grows_with_its_length(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        started = time.process_time()
        scrubbed(text)
        return time.process_time() - started

    assert seconds(40_000) < 20 * (seconds(4_000) + 0.01)


@pytest.mark.control
def test_fault_342_control_without_the_new_forms_settings_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed("scala tuple")
    monkeypatch.setattr(scrub, "FORMS", scrub.FORMS[:9])
    assert SECRET in scrubbed(text)
