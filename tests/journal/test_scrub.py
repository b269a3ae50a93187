"""What is taken for a secret by its form, and what looks alike and stays."""

from __future__ import annotations

import json
import time

import pytest
from test_scrub_forms import OF_A_WORD, PRINTED, printed
from test_scrub_forms import SECRET as PRINTED_SECRET

from airflow_recovery.journal import scrub
from airflow_recovery.journal.scrub import MASK, scrubbed, scrubbed_json

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1g"
GITHUB = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"

FORMS = {
    "spark conf, secret key": (f"spark.hadoop.fs.s3a.secret.key={SECRET}", "spark.hadoop.fs.s3a.secret.key=***"),
    "s3a, access key": ("fs.s3a.access.key=minio-user", "fs.s3a.access.key=***"),
    "s3a, one bucket": (f"fs.s3a.bucket.lake.secret.key {'='} {SECRET}", "fs.s3a.bucket.lake.secret.key = ***"),
    "s3a, session token": ("fs.s3a.session.token: FwoGZXIvYXdzE", "fs.s3a.session.token: ***"),
    "s3a, key of a customer": (f"fs.s3a.encryption.key={SECRET}", "fs.s3a.encryption.key=***"),
    "azure, conf": (
        f"fs.azure.account.key.lake.dfs.core.windows.net={SECRET}==",
        "fs.azure.account.key.lake.dfs.core.windows.net=***",
    ),
    "azure, connection string": (
        f"AccountName=lake;AccountKey={SECRET}==;EndpointSuffix=core.windows.net",
        "AccountName=lake;AccountKey=***;EndpointSuffix=core.windows.net",
    ),
    "azure, shared access": ("?sv=2024-01-01&sp=r&sig=a%2Fb%3D&se=2026", "?sv=2024-01-01&sp=r&sig=***&se=2026"),
    "azure, oauth": ("fs.azure.account.oauth2.client.secret=q8-x", "fs.azure.account.oauth2.client.secret=***"),
    "postgres, environment": ("PGPASSWORD=hunter2 psql -h db", "PGPASSWORD=*** psql -h db"),
    "mysql, environment": ("MYSQL_PWD=hunter2 mysql", "MYSQL_PWD=*** mysql"),
    "aws, environment": (f"AWS_SECRET_ACCESS_KEY={SECRET}", "AWS_SECRET_ACCESS_KEY=***"),
    "aws, key id": ("as AKIAIOSFODNN7EXAMPLE.", "as ***."),
    "json": (f'{{"aws_secret_access_key": "{SECRET}"}}', '{"aws_secret_access_key": "***"}'),
    "json, in camel case": ('{"clientSecret":"a b c","x":1}', '{"clientSecret":"***","x":1}'),
    "json in json": (r"{\"password\": \"hunter2\", \"n\": 1}", r"{\"password\": \"***\", \"n\": 1}"),
    "json in json in json": (r"{\\\"password\\\": \\\"hunter2\\\"}", r"{\\\"password\\\": \\\"***\\\"}"),
    "json, cut off": ('{"password": "hunter2 and mo', '{"password": "***'),
    "a quote inside": (r'password="hun\"ter2" user=ann', 'password="***" user=ann'),
    "python": ("PASSWORD = 'pw'; user=ann", "PASSWORD = '***'; user=ann"),
    "python, a dictionary": ("{'db_password': 'correct horse', 'x': 1}", "{'db_password': '***', 'x': 1}"),
    "ruby": (":password => 'pw'", ":password => '***'"),
    "yaml": ("password: hunter2", "password: ***"),
    "uri": ("postgresql://ann:pw@db:5432/x", "postgresql://***@db:5432/x"),
    "uri without a user": ("redis://:pw@cache:6379/0", "redis://***@cache:6379/0"),
    "jdbc": (
        "jdbc:postgresql://h/db?user=u&password=p&ssl=true",
        "jdbc:postgresql://h/db?user=u&password=***&ssl=true",
    ),
    "jdbc, oracle": ("jdbc:oracle:thin:scott/tiger@//db:1521/x", "jdbc:oracle:thin:***@//db:1521/x"),
    "connect": ("sc://spark:15002/;token=abc;user_id=me", "sc://spark:15002/;token=***;user_id=me"),
    "signed url": ("https://b.s3/x?X-Amz-Signature=ab12&x=1", "https://b.s3/x?X-Amz-Signature=***&x=1"),
    "bearer": ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer ***"),
    "basic": ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
    "cookie": ("Cookie: session=abc; csrf=def", "Cookie: ***"),
    "json web token": (f"refused {JWT}!", "refused ***!"),
    "github": (f"https://{GITHUB}@github.com/a/b", "https://***@github.com/a/b"),
    "vault": ("hvs.CAESIJlWh1bnRlcjI0ODk", "***"),
    "databricks": (f"dapi{'0a' * 16}", "***"),
    "command line": ("run.sh --db-password hunter2 --verbose", "run.sh --db-password *** --verbose"),
    "hadoop's xml": (
        "<property><name>fs.s3a.secret.key</name><value>x y</value></property>",
        "<property><name>fs.s3a.secret.key</name><value>***</value></property>",
    ),
    "private key": (f"{PEM} x", "*** x"),
    "private key, cut off": ("-----BEGIN PRIVATE KEY-----\nMIIE", "***"),
}

HARMLESS = (
    "nothing to see at s3://bucket/date=2026-01-01/x",
    "by_route@2 reads raw@1",
    "token",
    "s3://lake/out/key=5/part-00000-6f1c2a.snappy.parquet",
    "/opt/airflow/secrets/tokens/a.json",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "etag 098f6bcd4621d373cade4e832627b4f6-3",
    "column key: bigint, sort_key=day, partition_key=route, primary key: id",
    "[UNRESOLVED_COLUMN] `key` cannot be resolved. Did you mean one of `keys`, `secret_keys`?",
    "Syntax error: unexpected token: from; Unrecognized token 'abc': was expecting 'true'",
    "spark.executor.memory=4g spark.sql.shuffle.partitions: 200 spark.authenticate=true",
    "spark.hadoop.fs.s3a.aws.credentials.provider=software.amazon.awssdk.auth.credentials.X",
    "spark.ssl.keyStore=/etc/keys/store.jks spark.kubernetes.authenticate.oauthTokenFile=/var/run/token",
    "spark.redaction.regex=(?i)secret|password|token|access[.]?key",
    "fs.s3a.encryption.key=arn:aws:kms:eu-west-1:111122223333:key/1234abcd",
    "PWD=/opt/airflow OLDPWD=/",
    "basic functionality of a bearer certificate.",
    "max_tokens=12 passwords: 3 design=x config: y",
    "http://spark:8080/app?id=1 and file:///a:b/c@d",
    "ExpiredToken: The provided token has expired. InvalidAccessKeyId: The key is not known.",
    "java.lang.IllegalArgumentException: password must not be empty",
)


@pytest.mark.parametrize(("text", "clean"), FORMS.values(), ids=FORMS)
def test_fault_120_what_looks_like_a_secret_is_taken_out(text: str, clean: str) -> None:
    assert scrubbed(text) == clean
    assert scrubbed(clean) == clean
    said = f"Failed at 12:00: {text}"
    assert scrubbed(said) == f"Failed at 12:00: {clean}"


@pytest.mark.parametrize("text", HARMLESS)
def test_fault_120_what_only_looks_alike_stays(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.parametrize("number", range(len(scrub.FORMS)))
def test_fault_120_control_each_form_of_the_table_is_needed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "FORMS", tuple(each for n, each in enumerate(scrub.FORMS) if n != number))
    leaks = [name for name, (text, clean) in FORMS.items() if scrubbed(text) != clean]
    leaks += [name for name in PRINTED if PRINTED_SECRET in scrubbed(printed(name))]
    assert leaks or [text for text in OF_A_WORD if "hunter" in scrubbed(text)]


def test_every_string_of_a_document() -> None:
    document = {"a": ["password=x", 1], "b": {"token": "t"}, "c": None}
    assert scrubbed_json(document) == {"a": ["password=***", 1], "b": {"token": "t"}, "c": None}


def test_a_secret_in_a_document_inside_a_document() -> None:
    inner = json.dumps({"conf": json.dumps({"fs.s3a.secret.key": SECRET})})
    assert SECRET not in scrubbed(inner)
    assert MASK in scrubbed(inner)


@pytest.mark.parametrize(
    "unit",
    ["a", "eyJ", "-eyJ", "key", "password", '\\"', "://", ":thin:", "-", "secret.key", "a:b@", "--token ", 'token="'],
)
def test_long_text_is_read_in_time_that_grows_with_its_length(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        started = time.process_time()
        scrubbed(text)
        return time.process_time() - started

    assert seconds(200_000) < 20 * (seconds(20_000) + 0.01)
