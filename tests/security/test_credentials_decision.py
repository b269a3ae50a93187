"""What the one function decides: which hosts and buckets may get the deployment's credentials."""

from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import LocationNotAllowed
from airflow_recovery.store import allowed
from airflow_recovery.store.allowed import (
    TRUSTED,
    Limits,
    Reach,
    Source,
    decide,
    is_never,
    place_of,
    read_allowed,
)
from airflow_recovery.store.azure import AZURE_CLOUDS

BOX = "abfss://box@acc.dfs.core.windows.net"
UNTRUSTED = sorted(set(Source) - TRUSTED)

EVIL_AZURE = (
    "abfss://box@acc.dfs.evil.example/x",
    "abfss://box@acc.dfs.core.windows.net.evil.example/x",
    "abfss://box@acc.dfs.evilcore.windows.net/x",
    "abfss://box@acc.dfs.core.windows.net@evil.example/x",
    "abfss://box@evil.example/acc.dfs.core.windows.net/x",
    "abfss://box@evil.example#acc.dfs.core.windows.net/x",
    "abfss://box@evil.example?acc.dfs.core.windows.net/x",
    "abfss://box@acc.dfs.core.windows.net:8443/x",
    "abfss://box@acc.dfs.core.windows.net./x",
    "abfss://box@acc.dfs.core%2ewindows.net/x",
    "abfss://box@acc.dfs.core.windows.net%40evil.example/x",
    "abfss://box@acc.dfs.core.window\u017f.net/x",
    "abfss://box@acc.dfs.core\u3002windows.net/x",
    "abfss://box@acc.dfs.xn--core-windows.net/x",
    "abfss://box@evil.example\\.dfs.core.windows.net/x",
    "abfss://box@evil.example/.dfs.core.windows.net/x",
    "abfss://user:secret@acc.dfs.core.windows.net/x",
    "abfss://box@more.acc.dfs.core.windows.net/x",
    "abfss://box@169.254.169.254/x",
    "abfss://box@acc.dfs.localhost/x",
    "abfss://box@acc.dfs.core.cloudapi.de/x",  # a cloud that was closed: its domain may be anybody's
    "abfss:///x",
    "abfss://box/x",
    "delta+abfss://box@acc.dfs.evil.example/x",
    "delta+ABFSS://box@acc.dfs.evil.example/x",
    "delta+az://box@evil.example/x",
    "delta+https://acc.dfs.evil.example/x",
)
EVIL_BUCKETS = (
    "s3://lake@evil.example/x",
    "s3://lake:9000/x",
    "s3://user:pass@lake/x",
    "s3://evil.example#lake/x",
    "s3://lake?x=/y",
    "s3://../x",
    "s3://arn:evil:s3:us-east-1:123456789012:accesspoint:x/y",
    "s3://arn:aws:s3:us-east-1.evil.example:123456789012:accesspoint:x/y",
    "s3://la\u212ae/x",
    "s3://lake\\evil/x",
    "S3://lake/x",
    "s3://la ke/x",
    "gs://lake@evil.example/x",
    "gs://lake%2f..%2fother/x",
    "GS://lake/x",
)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("location", [*EVIL_AZURE, *EVIL_BUCKETS])
def test_fault_365_no_source_may_name_a_host_that_is_not_the_clouds(location: str, source: Source) -> None:
    everything = Limits(written=lambda: {"s3://lake", "gs://lake", BOX})
    with fails_with("location-not-understood"):
        decide(location, source, everything)


@pytest.mark.parametrize("cloud", AZURE_CLOUDS)
def test_each_cloud_of_azure_is_known(cloud: str) -> None:
    assert decide(f"abfss://box@acc.dfs.{cloud}/x", Source.DAG_FILE).host == f"acc.dfs.{cloud}"
    assert decide(f"abfss://box@ACC.dfs.{cloud.upper()}/x", Source.DAG_FILE).root == f"abfss://box@acc.dfs.{cloud}"


@pytest.mark.parametrize(
    "endpoint",
    [
        *("http://127.0.0.1:10000/devstoreaccount1", "https://minio.mine.example:9000", "http://user_net:9000"),
        *("https://acc.blob.core.windows.net", "http://minio.ns.svc.cluster.local.:9000", "https://[fd12::5]:9000/"),
    ],
)
def test_an_endpoint_of_the_connection_is_taken(endpoint: str) -> None:
    reach = Reach(endpoint)
    assert decide(f"{BOX}/x", Source.SETTING, reach=reach).kind == "abfss"
    assert decide("s3://lake/x", Source.SETTING, reach=reach).kind == "s3"


@pytest.mark.parametrize(
    "location", ["abfss://box@acc.dfs.core.chinacloudapi.cn/x", "abfss://box@b.dfs.core.windows.net/x"]
)
def test_an_endpoint_of_azure_is_that_of_the_account_which_the_location_names(location: str) -> None:
    with fails_with("location-not-understood"):
        decide(location, Source.SETTING, reach=Reach("https://acc.blob.core.windows.net"))


NEVER = (
    *("169.254.169.254", "169.254.170.2", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254"),
    *("[fd00:ec2::254]", "::ffff:169.254.169.254", "[::ffff:a9fe:a9fe]", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *("::169.254.169.254", "metadata.google.internal", "METADATA.google.internal", "metadata.google.internal."),
    *("::ffff:0:169.254.169.254", "2001:0:a9fe:a9fe::1"),
    *("metadata", "instance-data.ec2.internal", "168.63.129.16", "100.100.100.200"),
)


@pytest.mark.parametrize("host", NEVER)
def test_fault_366_a_machines_own_metadata_is_never_asked(host: str) -> None:
    assert is_never(host)
    shown = host if host.startswith("[") or ":" not in host else f"[{host}]"
    for source in Source:
        for location, reach in ((f"http://{shown}/x.py", Reach()), ("s3://lake/x", Reach(f"http://{shown}"))):
            with pytest.raises(LocationNotAllowed):
                decide(location, source, Limits(allowed=("s3://lake",), written=lambda: {f"http://{shown}"}), reach)


@pytest.mark.control
@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "100.100.100.200"])
def test_fault_366_control_without_the_list_a_metadata_service_gets_requests(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowed, "is_never", lambda name: False)
    assert decide(f"http://{host}/x.py", Source.DAG_FILE).kind == "web"
    assert decide("s3://lake/x", Source.SETTING, reach=Reach(f"http://{host}")).kind == "s3"


@pytest.mark.parametrize(
    "host",
    ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.254.169.254", "127.1", "a.b.0x7f"],
)
def test_fault_366_an_address_has_one_spelling(host: str) -> None:
    with pytest.raises(ValueError, match="four numbers"):
        place_of(f"http://{host}/x")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5", "::1", "localhost", "minio", "storage.mine.example"])
def test_a_server_of_ones_own_may_be_anywhere_else(host: str) -> None:
    assert not is_never(host)


# --- buckets ----------------------------------------------------------------------------------------------------------

LIMITS = Limits(
    own=("s3://journal/recovery", "s3://results/recovery", "/results"),
    allowed=(
        "s3://landing/in",
        "s3a://whole",
        "gs://landing",
        f"{BOX}/in",
        "iceberg://lake",
        "https://code.example/jobs",
    ),
    written=lambda: {"s3://lake"},
)
FOR_ALL = (
    *("s3://journal/x", "s3://results/other", "s3a://results/x", "s3://landing/in", "s3://landing/in/deep/x"),
    *(
        "s3://whole",
        "s3a://whole/x",
        "gs://landing/x",
        f"{BOX}/in/x",
        "iceberg://lake/db.t?branch=b",
        "hive://lake/d.t",
    ),
    *("delta+s3://landing/in/t", "https://code.example/jobs/x.py", "https://code.example:443/jobs/x.py", "s3://lake/x"),
    *("abfs://box@acc.dfs.core.windows.net/in/x", "/data/x", "file:///data", "s3://lake/a%2Fb/x"),
)
FOR_THE_DEPLOYMENT = (
    *(
        "s3://evil/x",
        "s3://landing",
        "s3://landing/inn",
        "s3://landing/in2/x",
        "s3://landing/other",
        "s3://landing-evil/in",
    ),
    *("s3://landing/in/../other", "s3://landing/in/%2e%2e/other", "s3://landing/in/%252e%252e/other"),
    *(
        "s3://landing/in/..%2fother",
        "s3://landing/in/./x",
        "s3://landing//in/x",
        "s3://landing/in/%5c..%5cx",
        "s3://whole.evil/x",
    ),
    *("s3://resultsx/x", "gs://landing2/x", "gs://whole/x", "s3://gs/x", f"{BOX}/other"),
    "abfss://box2@acc.dfs.core.windows.net/in",
    "abfss://box@acc2.dfs.core.windows.net/in",
    "abfss://box@acc.dfs.core.chinacloudapi.cn/in",
    *(
        "iceberg://other/db.t",
        "hive://other/d.t",
        "delta+s3://evil/t",
        "https://code.example/job",
        "http://code.example/jobs/x",
    ),
    *(
        "https://code.example:8443/jobs/x.py",
        "https://evil.code.example/jobs/x.py",
        "https://code.example.evil/jobs/x.py",
    ),
)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("location", FOR_ALL)
def test_what_is_allowed_may_come_from_everywhere(location: str, source: Source) -> None:
    decide(location, source, LIMITS)


@pytest.mark.parametrize("location", FOR_THE_DEPLOYMENT)
def test_fault_367_a_bucket_that_a_run_or_a_record_has_chosen_must_be_allowed(location: str) -> None:
    for source in UNTRUSTED:
        with fails_with("location-not-allowed-here"):
            decide(location, source, LIMITS)
    for source in TRUSTED:
        decide(location, source, LIMITS)


@pytest.mark.control
def test_fault_367_control_without_the_look_at_buckets_a_run_chooses_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "_is_allowed", lambda *_: True)
    for location in FOR_THE_DEPLOYMENT:
        decide(location, Source.RUN, LIMITS)


@pytest.mark.parametrize("name", ["https://user@code.example/jobs/x", "https://user:secret@code.example/jobs/x"])
def test_a_web_address_has_no_user_and_no_secret_is_shown(name: str) -> None:
    with pytest.raises(LocationNotAllowed) as caught:
        decide(name, Source.DAG_FILE, LIMITS)
    assert "secret" not in str(caught.value)
    with pytest.raises(LocationNotAllowed) as caught:
        decide("https://evil.example/x?sig=secret", Source.RUN, LIMITS)
    assert "secret" not in str(caught.value)


def test_a_connection_names_buckets_and_hosts() -> None:
    assert decide("s3://named/x", Source.RUN, reach=Reach(buckets=("named",))).root == "s3://named"
    reach = Reach(hosts=("name.example", ".nodes.example"))
    for host in ("name.example:9870", "d1.nodes.example:9864"):
        decide(f"http://{host}/webhdfs/v1/x", Source.REDIRECT, reach=reach)
    for host in ("evil.example", "nodes.example", "evilnodes.example", "name.example.evil"):
        with pytest.raises(LocationNotAllowed):
            decide(f"http://{host}/webhdfs/v1/x", Source.REDIRECT, reach=reach)


def test_the_setting_is_read() -> None:
    assert read_allowed("") == ()
    text = " s3://a/b,gs://c\nabfss://d@e.dfs.core.windows.net "
    assert read_allowed(text) == ("s3://a/b", "gs://c", "abfss://d@e.dfs.core.windows.net")


@pytest.mark.parametrize(
    "entry", ["lake", "/lake", "s3://", "s3://a/../b", "s3://a@b", "s3://*", "http://169.254.169.254"]
)
def test_a_setting_that_allows_something_else_is_refused(entry: str) -> None:
    with fails_with("allowed-locations-unfit"):
        read_allowed(f"s3://fine,{entry}")
