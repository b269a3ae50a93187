"""No code opens a store, a table or a web address past `airflow_recovery.store.allowed.decide`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import airflow_recovery

ROOT = Path(airflow_recovery.__file__).parent
NOT_THE_PRODUCT = ("testing",)

# What is called, and the only modules that may: each of them calls `decide`, or is given what has passed it.
CALLS = {
    "S3Store": {"store.s3_scheme"},
    "GoogleStore": {"store.google"},
    "AzureStore": {"store.azure"},
    "StoreAccess": {"store.azure", "store.cloud", "store.google", "store.s3_scheme", "store.scheme"},
    "S3Access": {"hooks.s3_connection", "store.s3_scheme"},
    "store_at": {"hooks.stores", "store.opening"},
    "open_store": {"console.deployment", "driver.stores", "hooks.stores"},
    "S3Clients": {"store.s3", "store.s3_clients"},
    "new_session": {"hooks.s3_connection", "store.s3_clients", "store.s3_scheme"},
    "AwsBaseHook": {"hooks.s3_connection"},
    "AwsGenericHook": {"hooks.code_sources"},  # of Glue: no location
    "DatabricksHook": {"hooks.code_sources"},  # of the operator's own connection: no location
    "DataprocHook": {"operators.dataproc"},  # as the provider's own operator
    "AwsConnectionWrapper": {"hooks.s3_connection"},
    "build_opener": {"hooks.code_sources"},
    "urlopen": set(),
    "HTTPConnection": {"driver.cached_blocks", "hooks.code_sources"},  # the first: of the driver's own Spark
    "HTTPSConnection": {"hooks.code_sources"},
    "DeltaTable": {"results.stored_rows", "results.tables", "sinks.delta"},  # with `storage_options`, which decides
    "write_deltalake": {"sinks.delta"},
    "load_catalog": {"store.iceberg_catalog"},
    "open_catalog": {"results.tables", "sinks.iceberg"},  # with `catalog_properties`, which decides
}
IMPORTS = {
    "obstore": {"store.azure", "store.cloud", "store.cloud_errors", "store.google"},
    "boto3": {"store.s3_clients"},
    "botocore": {"store.s3", "store.s3_clients", "store.s3_errors", "store.s3_listing"},
    "pyarrow.fs": set(),
    "fsspec": set(),
    "s3fs": set(),
    "adlfs": set(),
    "gcsfs": set(),
    "google.cloud": set(),
    "azure": set(),
    "httpx": set(),
    "aiohttp": set(),
}


@cache
def modules() -> dict[str, ast.Module]:
    """Those of the product in which one of the names stands."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        text = path.read_text()
        if name.partition(".")[0] not in NOT_THE_PRODUCT and any(each in text for each in (*CALLS, *IMPORTS)):
            found[name] = ast.parse(text)
    return found


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The name that is called: of an attribute, of either side of an ``if``, in a ``partial``, or of a base class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = ast.Call(ast.Name("class"), node.bases, [], lineno=node.lineno)
            yield from ((name, bases) for base in node.bases for name in _names(base))
        elif isinstance(node, ast.Call):
            called = [*_names(node.func)]
            yield from ((name, node) for name in called)
            if "partial" in called and node.args:
                yield from ((name, node) for name in _names(node.args[0]))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.IfExp):
        yield from (*_names(node.body), *_names(node.orelse))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def past_the_function(found: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(module, what it calls or imports) of those that may not."""
    wrong = {
        (module, name)
        for module, tree in found.items()
        for name, _ in calls(tree)
        if name in CALLS and module not in CALLS[name]
    }
    return wrong | {
        (module, name)
        for module, tree in found.items()
        for each in imported(tree)
        for name in IMPORTS
        if (each == name or each.startswith(f"{name}.")) and module not in IMPORTS[name]
    }


def test_fault_369_no_module_opens_a_store_past_the_function() -> None:
    assert past_the_function(modules()) == set()


def test_the_lists_hold_no_module_that_does_not() -> None:
    found = modules()
    called = {(name, module) for module, tree in found.items() for name, _ in calls(tree)}
    assert {(name, module) for name, those in CALLS.items() for module in those} <= called


@pytest.mark.control
@pytest.mark.parametrize(
    "source",
    [
        "S3Store('s3://b')",
        "(GoogleStore if x else AzureStore)(uri)",
        "scheme_for(uri).store_at(uri)",
        "store.opening.open_store(uri)",
        "import obstore.store",
        "from pyarrow.fs import S3FileSystem",
        "urllib.request.urlopen(url)",
        "deltalake.DeltaTable(uri)",
        "import boto3",
        "partial(open_store, endpoint_url=url)",
        "class Mine(http.client.HTTPConnection): ...",
    ],
)
def test_fault_369_control_code_that_does_is_found(source: str) -> None:
    assert past_the_function({"task.new": ast.parse(source)})


def test_who_opens_a_store_says_where_the_location_was_read() -> None:
    for module, tree in modules().items():
        for name, call in calls(tree):
            if name == "open_store":
                assert "source" in {each.arg for each in call.keywords}, module


def test_the_stores_of_a_deployment_have_one_way_to_a_client() -> None:
    (stores,) = (
        node for node in modules()["hooks.stores"].body if isinstance(node, ast.ClassDef) and node.name == "Stores"
    )
    clients = {"store_at", "open_store"}
    ways = {
        method.name: {name: call.lineno for name, call in calls(method)}
        for method in stores.body
        if isinstance(method, ast.FunctionDef)
    }
    makers = {name for name, called in ways.items() if clients & called.keys()}
    assert makers == {"_open"}
    opens = ways["_open"]
    assert all(opens["decide"] < opens[client] for client in clients & opens.keys())


def test_open_store_and_the_commands_decide_first() -> None:
    for module, function in (("store.opening", "open_store"), ("console.deployment", "open_location")):
        (found,) = (
            node
            for node in ast.walk(modules()[module])
            if isinstance(node, ast.FunctionDef) and node.name == function and len(node.body) > 2
        )
        lines = {name: call.lineno for name, call in calls(found)}
        made = {"store_at", "open_store"} & lines.keys()
        assert made
        assert all(lines["decide"] < lines[each] for each in made)
