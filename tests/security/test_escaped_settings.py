"""How settings are printed: a list that was drawn up before the scrubber was read, and what of it is still not found.

``§`` stands for the secret, ``¶`` for a line end, ``⎋`` for the character that begins a terminal's command.
"""

from __future__ import annotations

import re
import time

import pytest

from airflow_recovery.journal import scrub
from airflow_recovery.journal.scrub import scrubbed

ENCODED, WORD = "Xy7s3cr3tV4lue", "opensesame"

PRINTED = r"""
spark.hadoop.fs.s3a.secret.key=§
(spark.hadoop.fs.s3a.secret.key,§)
ArraySeq((spark.app.name,x), (spark.hadoop.fs.s3a.secret.key,§))
Map(spark.hadoop.fs.s3a.secret.key -> §)
Map("password" -> "§", "user" -> "joe")
HashMap(user -> joe, password -> §)
{user=joe, password=§}
Some(password=§)
Config(user=joe,password=§)
ConnectionOptions[url=jdbc:x, password=§]
ConnectionOptions{user='joe', password='§'}
val password: String = "§"
password: String = §
final String PASSWORD = "§";
private static final char[] secretKey = "§".toCharArray();
.option("password", "§")
.config("spark.hadoop.fs.s3a.secret.key", "§")
conf.set("fs.s3a.secret.key", "§")
spark.conf.set('fs.azure.account.key.acct.dfs.core.windows.net', '§')
props.setProperty("password", "§")
props.put("ssl.key.password", "§")
PlainLoginModule required username="joe" password="§";
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"joe\" password=\"§\";
-Djavax.net.ssl.keyStorePassword=§
-Dspark.hadoop.fs.s3a.secret.key="§"
--conf spark.hadoop.fs.s3a.secret.key=§
['--conf', 'spark.hadoop.fs.s3a.secret.key=§']
["--password", "§"]
['--password', '§', '--user', 'joe']
--password §
--password=§
--password '§'
--db-password "§"
curl -u joe:§ https://host/x
curl --user joe:§ https://host/x
curl -H "Authorization: Bearer §" https://host
Authorization: Basic §
PGPASSWORD=§ psql -h host
export AWS_SECRET_ACCESS_KEY=§
export AWS_SECRET_ACCESS_KEY='§'
set AWS_SECRET_ACCESS_KEY=§
$env:AWS_SECRET_ACCESS_KEY = "§"
declare -x AWS_SECRET_ACCESS_KEY="§"
setenv AWS_SECRET_ACCESS_KEY §
set -gx DB_PASSWORD §
docker run -e DB_PASSWORD=§ image
+ export DB_PASSWORD=§
AWS_SESSION_TOKEN=$'§'
{"password": "§"}
{"user":"joe","password":"§"}
{\"password\": \"§\"}
{\\\"password\\\": \\\"§\\\"}
{"name": "DB_PASSWORD", "value": "§"}
{"value": "§", "name": "DB_PASSWORD"}
{"key": "fs.s3a.secret.key", "value": "§"}
{"Name":"DB_PASSWORD","Value":"§"}
{"ParameterKey":"DbPassword","ParameterValue":"§"}
{'password': '§'}
{'password': b'§'}
{"password": ["§"]}
{"private_key": "-----BEGIN PRIVATE KEY-----\n§\n-----END PRIVATE KEY-----\n"}
&quot;password&quot;: &quot;§&quot;
%22password%22%3A%22§%22
password%3D§
?user=joe&amp;password=§&amp;ssl=true
password: §
password: "§"
password: |¶  §
password: >-¶  §
- name: DB_PASSWORD¶  value: §
- name: DB_PASSWORD¶  value: "§"
? password¶: §
password: !!str §
password: &pw §
{user: joe, password: §}
OPTIONS (password '§')
OPTIONS ('user' = 'joe', 'password' = '§')
OPTIONS (password = "§")
TBLPROPERTIES ('fs.s3a.secret.key'='§')
CREATE USER joe WITH PASSWORD '§'
ALTER ROLE joe WITH ENCRYPTED PASSWORD '§'
CREATE USER joe IDENTIFIED BY '§'
CREATE USER joe IDENTIFIED BY §
SET spark.hadoop.fs.s3a.secret.key=§
SET spark.hadoop.fs.s3a.secret.key = '§';
SET PASSWORD FOR 'joe'@'host' = '§'
COPY t FROM 's3://b/x' CREDENTIALS 'aws_access_key_id=abc;aws_secret_access_key=§'
CREDENTIALS = (AWS_KEY_ID='abc' AWS_SECRET_KEY='§')
SECRET_ACCESS_KEY '§'
dblink('host=h user=joe password=§ dbname=d')
CREATE SECRET s (TYPE S3, KEY_ID 'abc', SECRET '§')
jdbc:postgresql://h/d?user=joe&password=§
jdbc:sqlserver://h;user=joe;password=§;encrypt=true
jdbc:sqlserver://h;user=joe;password={§};encrypt=true
jdbc:oracle:thin:joe/§@//h:1521/x
postgresql://joe:§@h/d
s3a://abc:§@bucket/x
https://acct.blob.core.windows.net/c/f?sv=2021-08-06&sig=§
https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=§
https://b.s3.amazonaws.com/k?X-Amz-Security-Token=§&X-Amz-Expires=60
https://hooks.slack.com/services/T00000000/B00000000/§
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=§;EndpointSuffix=core.windows.net
Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=§
https://h/x?access_token=§
|spark.hadoop.fs.s3a.secret.key|§|
| user | joe |¶| password | § |
 password | §
-RECORD 0----------¶ key   | fs.s3a.secret.key¶ value | §
Row(key='spark.hadoop.fs.s3a.secret.key', value='§')
[spark.hadoop.fs.s3a.secret.key,§]
  (spark.hadoop.fs.s3a.secret.key,§)
spark.hadoop.fs.s3a.secret.key    §
<property><name>fs.s3a.secret.key</name><value>§</value></property>
<property>¶  <name>fs.s3a.secret.key</name>¶  <value>§</value>
<entry key="password">§</entry>
<password>§</password>
<server password="§"/>
fs.s3a.secret.key	§
key: "fs.s3a.secret.key"¶value: "§"
pairs { key: "db.password" value: "§" }
KeyValue(key=fs.s3a.secret.key, value=§)
SetCommand Some((spark.hadoop.fs.s3a.secret.key,Some(§)))
CaseInsensitiveMap(password -> §)
password -> Some(§)
password → §
password ⇒ §
('password', '§')
[('spark.hadoop.fs.s3a.secret.key', '§'), ('spark.app.name', 'x')]
Namespace(user='joe', password='§')
SecretHolder(password=SecretStr('§'))
environ({'HOME': '/root', 'DB_PASSWORD': '§'})
{:password=>"§"}
{:password "§"}
mapOf("password" to "§")
password := "§"
password = "§"
secret-key = §
db.password : §
db.password §
machine h login joe password §
map[password:§ user:joe]
{User:joe Password:§}
Options { user: "joe", password: "§" }
Options { password: Some("§") }
["password"]=> string(8) "§"
'password' => '§',
X-Api-Key: §
x-amz-security-token: §
Cookie: session=§
Set-Cookie: session=§; HttpOnly
Proxy-Authorization: Basic §
b'Authorization: Bearer §'
level=info user=joe password="§"
password="two words §"
password="a\"§"
password='a,§)'
password='a''§'
dbPassword=§
secretAccessKey: §
clientSecret=§
client_secret=§
apiKey=§
api-key: §
passwd=§
pwd=§
passphrase=§
account_key=§
sasToken=§
sas_token: §
refresh_token=§
webhook_token=§
fernet_key = §
spark.authenticate.secret=§
spark.ssl.keyPassword=§
spark.ssl.trustStorePassword §
fs.azure.account.oauth2.client.secret=§
fs.azure.sas.fixed.token.c.acct=§
fs.gs.auth.service.account.private.key=§
javax.jdo.option.ConnectionPassword=§
hive.metastore.password -> §
⎋[32mpassword⎋[0m=⎋[1m§⎋[0m
PASSWORD: §
Password for user joe: §
password is §
the password '§' was refused
password § was refused
connect(host="h", password="§")
connect(host="h", password = r"§")
f(password=None, token="§")
access_key=abc, secret_key=§, region=eu
"auth":{"username":"joe","password":"§"}
auth=('joe', '§')
HTTPBasicAuth('joe', '§')
BasicAWSCredentials("AKIAIOSFODNN7EXAMPLE", "§")
AWSCredentials(accessKeyId=abc, secretAccessKey=§)
Credentials { accessKeyId: 'abc', secretAccessKey: '§' }
snowflake.password="§"
sfPassword -> §
options: Map(dbtable -> t, password -> §, url -> jdbc:x)
JDBCOptions(Map(password->§))
{"spark.hadoop.fs.s3a.secret.key":"§","spark.app.name":"x"}
spark.hadoop.fs.s3a.secret.key="§" # comment
"spark.hadoop.fs.s3a.secret.key" = "§"
`password`='§'
`spark.hadoop.fs.s3a.secret.key` `§`
SET `spark.hadoop.fs.s3a.secret.key`=`§`
'password','§'
"password","§"
password;§
password,§
""".strip("\n").split("\n")
"""Scala, Java, JSON, YAML, TOML, XML, SQL, shells, Spark, URLs, headers, logs and other languages."""

LIKE_PROSE = (
    " password | §",
    "db.password §",
    "spark.ssl.trustStorePassword §",
    "Password for user joe: §",
    "password is §",
    "password § was refused",
    "'password','§'",
    '"password","§"',
    "password;§",
    "password,§",
)
"""A secret that is a word in small letters is not told from prose here. One that looks encoded is found."""


def printed(form: str, secret: str) -> str:
    return form.replace("¶", "\n").replace("⎋", "\x1b").replace("§", secret)


@pytest.mark.parametrize("form", PRINTED)
def test_fault_386_no_form_of_the_second_list_leaks(form: str) -> None:
    assert "§" in form
    assert ENCODED not in scrubbed(printed(form, ENCODED))
    assert (WORD in scrubbed(printed(form, WORD))) == (form in LIKE_PROSE)


def test_the_list_is_one_of_two_hundred() -> None:
    assert len(PRINTED) == len({*PRINTED}) == 210
    assert {*LIKE_PROSE} <= {*PRINTED}


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[32mINFO\x1b[0m 3 rows",
        "def f(token: str = None) -> str",
        "path: str = '/data'",
        "rename day to month",
        "auth=('ann')",
        "https://hooks.slack.com/services/",
        "key   | day\nvalue | 3",
        "Authorization: denied",
        "login ann failed",
        "password='', user='ann'",
        "`day` and `route`",
        "hive.metastore.client.socket.timeout;x=3",
    ],
)
def test_fault_386_ordinary_text_stays_readable(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.control
def test_fault_386_control_without_one_form_its_settings_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    form = 'BasicAWSCredentials("AKIAIOSFODNN7EXAMPLE", "§")'
    assert form in PRINTED
    others = [known for known in scrub.FORMS if known[0] != ("auth", "credential")]
    monkeypatch.setattr(scrub, "FORMS", others)
    assert ENCODED in scrubbed(printed(form, ENCODED))


BLANKS = 20_000


def seconds(pattern: re.Pattern[str], blanks: int) -> float:
    begun = time.process_time()
    pattern.sub("", "db.password" + " " * blanks)
    return time.process_time() - begun


@pytest.mark.parametrize("blank", [" ", "\t", "\n", " \t"])
def test_fault_386_a_long_text_is_read_at_once(blank: str) -> None:
    """With a form that reads each blank twice, this would take minutes."""
    text = "db.password" + blank * BLANKS
    assert scrubbed(text) == text


@pytest.mark.control
def test_fault_386_control_a_form_that_reads_each_blank_twice_takes_four_times_as_long_for_twice_the_text() -> None:
    (form,) = (pattern for _, pattern, _ in scrub.FORMS if r"(?:[ ]{2}|\t)[ \t]*" in pattern.pattern)
    twice = re.compile(form.pattern.replace(r"(?:[ ]{2}|\t)", r"(?:[ ]{2,}|\t)"), re.MULTILINE)
    assert seconds(twice, 4_000) > 2.5 * seconds(twice, 2_000) > 10 * seconds(form, 2_000)
