"""Records to bytes and back; and bytes that are refused."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pytest
from dataclass_strategies import values_of
from expected_errors import fails_with
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.errors import JobDefinitionError, RecordInvalid
from airflow_recovery.journal import codec
from airflow_recovery.journal.codec import FORMAT_VERSION, checked_record, decode_record, encode_record, parse_json
from airflow_recovery.model.codec import canonical_json, to_json
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import GroupAttempts, InputGroupRef, InputRef, Inputs
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.record_kinds import RECORD_KINDS
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    ExternalObject,
    Outcome,
    PlanRecord,
    Record,
    Reset,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.model.retention import ReleasePolicy, Retention

IDENTITY = RunIdentity("flights", "date 2026-01-01T00:00:00+00:00", "group")
GOLDEN = Path(__file__).parents[1] / "golden"

LITERALS: dict[str, Record] = {
    "plan": PlanRecord(
        "jobs.flights:flights",
        (
            RegionPlan("raw", ("raw", "cleaned"), ("cleaned",), (), False, "f1", (("raw", "a"), ("cleaned", "b"))),
            RegionPlan("delays", ("delays",), ("delays",), ("raw",), True, None),
        ),
    ),
    "claim": Claim(
        region="delays",
        attempt=2,
        writer="w1",
        plan_hash="0123abcd",
        inputs=(InputRef("raw", 1),),
        airflow_run_id="scheduled__2026-01-01",
        try_number=3,
        ti_id="019a-7b",
        tag="airflow-recovery-1",
        claimed_at="2026-01-01T00:00:00+00:00",
        epoch="7",
    ),
    "outcome": Outcome(
        region="delays",
        attempt=2,
        state=AttemptState.FINISHED,
        writer="w1",
        ended_at="2026-01-01T00:01:00+00:00",
        fingerprint="f2",
        inputs=(InputRef("raw", 1),),
        externals=(ExternalObject("raw", "s3://lake/flights.csv", 12, "e1"),),
        outputs=(
            PartitionManifest(
                "delays",
                "s3://data/flights/delays/00000002/delays",
                (ResultObject("part-0.parquet", 10, "e2"), ResultObject("part-1.parquet", 0, "e3")),
                rows=5,
                schema='{"type":"struct"}',
            ),
            PartitionManifest("side", "file:///data/side", (), None, None, managed=False),
        ),
        spark_seconds=1.5,
        application_id="app-1",
    ),
}
"""What the golden files of these names mean."""


def kind_of(name: str) -> str:
    return name.split("-")[0]


def golden_record(file: Path) -> Record:
    return decode_record(IDENTITY, RECORD_KINDS[kind_of(file.stem)].record, file.read_bytes(), where=file.name)


EXAMPLES: dict[str, Record] = {file.stem: golden_record(file) for file in sorted((GOLDEN / "v1").iterdir())}
"""By the names of the golden files. To add one, write the bytes of `encode_record` to a file of another name."""


MANIFEST = {"result": "a", "location": "s3://a", "objects": [], "rows": 1, "schema": None, "managed": True}


MONTHS = RegionGroup(
    RegionPlan(
        "by_month",
        ("cleaned", "by_month"),
        ("by_month",),
        (),
        False,
        None,
        (("by_month", "1" * 32),),
        determinism=(("by_month", Determinism.VERIFY),),
    ),
    (),
    tuple(f"{year}-{month:02d}" for year in range(2013, 2019) for month in range(1, 13)),
    batch_size=12,
    own_fingerprints=(("cleaned", tuple(f"{number:032x}" for number in range(72))),),
)
GROUPED = PlanRecord(
    "jobs.flights:flights",
    GroupedRegions(
        [
            RegionGroup(RegionPlan("carriers", ("carriers",), ("carriers",), (), False, "2" * 32), ()),
            MONTHS,
            RegionGroup(
                RegionPlan("ranked", ("ranked",), ("ranked",), (), False, None, (("ranked", "3" * 32),), ("by_month",)),
                (GroupEdge("by_month", DistributionPattern.POINTWISE),),
                MONTHS.keys,
            ),
            RegionGroup(
                RegionPlan("delays", ("delays",), ("delays",), (), True, "4" * 32, reads=("ranked", "carriers")),
                (
                    GroupEdge("ranked", DistributionPattern.ALL_TO_ALL),
                    GroupEdge("carriers", DistributionPattern.ALL_TO_ALL),
                ),
            ),
        ]
    ),
    Retention(ReleasePolicy.ON_RUN_SUCCESS, 60),
)
READ_AS_GROUPS = Inputs(
    [
        InputGroupRef(
            "by_month", MONTHS.keys_digest, GroupAttempts(72, 1, ((3, 2), (71, 4))), (("by_month", "d" * 64),)
        ),
        InputRef("carriers", 2),
    ]
)
READ_IN_RUNS = InputGroupRef(
    "by_hour",
    "8d4241665d43b8ba",
    GroupAttempts.of([3 if at in (5, 7) else 27 if at == 199 else 2 if at < 80 else 1 for at in range(200)]),
)
EXAMPLES_2: dict[str, Record] = {
    "plan": GROUPED,
    "claim": replace(cast(Claim, EXAMPLES["claim"]), inputs=READ_AS_GROUPS),
    "outcome": replace(cast(Outcome, EXAMPLES["outcome"]), inputs=READ_AS_GROUPS),
    "claim-runs": replace(cast(Claim, EXAMPLES["claim"]), inputs=Inputs([READ_IN_RUNS])),
    "claim-tokens": replace(cast(Claim, EXAMPLES["claim"]), inputs=Inputs([replace(READ_IN_RUNS, tokens="ab" * 32)])),
}


def document(name: str = "claim", **changes: object) -> bytes:
    found = json.loads(encode_record(IDENTITY, EXAMPLES[name]))
    del found["crc"]
    found.update({key: value for key, value in changes.items() if key != "body"})
    found["body"].update(changes.get("body", {}))
    return json.dumps(found).encode()


def refused(body: bytes, match: str, kind: type[Record] = Claim) -> None:
    with pytest.raises(RecordInvalid, match=match) as error:
        decode_record(IDENTITY, kind, body, where="s3://journal/key")
    assert str(error.value).startswith("s3://journal/key: ")


# round trip


def test_there_is_an_example_of_every_kind_and_of_every_field():
    assert {kind_of(name) for name in EXAMPLES} == set(RECORD_KINDS)
    assert without_example([*EXAMPLES.values(), *EXAMPLES_2.values()]) == []


def test_control_a_field_that_no_example_has_is_seen():
    others = [example for name, example in EXAMPLES.items() if name != "plan-batch"]
    assert without_example([*others, *EXAMPLES_2.values()]) == ["SubtaskPlan.batch"]


def without_example(examples: list[Record]) -> list[str]:
    """The fields that may be written into a record, and are not in any of ``examples``."""
    classes: set[type] = set()
    for kind in RECORD_KINDS.values():
        add_classes(kind.record, classes)
    found = {(type(part), field.name) for example in examples for part in parts_of(example) for field in written(part)}
    wanted = {(each, field.name) for each in classes for field in fields(cast(Any, each))}
    return sorted(f"{each.__name__}.{name}" for each, name in wanted - found)


def add_classes(hint: Any, known: set[type]) -> None:
    """The dataclasses of which values may stand where the annotation is, with all that stand in these."""
    for argument in get_args(hint):
        add_classes(argument, known)
    if isinstance(hint, type) and is_dataclass(hint) and hint not in known:
        known.add(hint)
        # What a driver is told of its mode stands in no record; a class of another test does not either.
        recorded = [
            each
            for each in hint.__subclasses__()
            if each.__module__.startswith("airflow_recovery.") and not issubclass(each, ModeSpec)
        ]
        for inner in (*get_type_hints(hint, include_extras=True).values(), *recorded):
            add_classes(inner, known)


def parts_of(value: Any) -> Iterator[Any]:
    """All values of dataclasses in ``value``, itself first."""
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from parts_of(getattr(value, field.name))
    elif isinstance(value, (GroupedRegions, Inputs, tuple)):
        own = value.groups if isinstance(value, GroupedRegions) else value.parts if isinstance(value, Inputs) else value
        for part in own:
            yield from parts_of(part)


def written(part: Any) -> Iterator[Field[Any]]:
    """The fields of ``part`` that are in its JSON."""
    yield from (
        field for field in fields(part) if not field.metadata.get("later") or getattr(part, field.name) != field.default
    )


def strategy(kind: type[Record]) -> st.SearchStrategy[Record]:
    values = values_of(kind)
    return values.map(in_order) if kind is PlanRecord else values


def in_order(plan: PlanRecord) -> PlanRecord:
    """The same regions, each once, and each after those that it reads."""
    regions = list({region.name: region for region in plan.regions}.values())
    before = [{region.name for region in regions[:at]} for at in range(len(regions))]
    return replace(
        plan,
        regions=tuple(
            replace(each, inputs=tuple(found for found in each.inputs if found in known))
            for each, known in zip(regions, before, strict=True)
        ),
    )


@settings(max_examples=150)
@given(st.sampled_from([kind.record for kind in RECORD_KINDS.values()]).flatmap(strategy))
def test_any_record_survives_the_round_trip(record):
    body = encode_record(IDENTITY, record)
    assert decode_record(IDENTITY, type(record), body, where="x") == record
    assert encode_record(IDENTITY, record) == body


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("claim-base", {"base", "reading"}),
        ("claim-streaming", {"channels", "after"}),
        ("outcome-splits", {"parts", "lost_splits"}),
        ("outcome-streaming", {"channels"}),
    ],
)
def test_what_a_mode_writes_lies_beside_the_records_own_fields(name, keys):
    written = to_json(EXAMPLES[name])
    assert "mode" not in written
    assert keys == set(to_json(cast(Any, EXAMPLES[name]).mode)) <= set(written)


def test_equal_records_have_equal_bytes():
    assert encode_record(IDENTITY, Reset("a", 1, "b", "c")) == encode_record(IDENTITY, Reset("a", 1, "b", "c", None))


# golden


@pytest.mark.parametrize("name", LITERALS)
def test_fault_39_format_version_1_is_read_for_ever(name):
    """The files are never written again. A new format adds a folder beside them."""
    assert EXAMPLES[name] == LITERALS[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_this_version_writes_the_golden_bytes(name):
    """But for the checksum, which the first of them have not."""
    body, golden = encode_record(IDENTITY, EXAMPLES[name]), (GOLDEN / "v1" / f"{name}.json").read_bytes()
    written = json.loads(body)
    assert canonical_json(written).encode() == body
    del written["crc"]
    document = json.loads(golden)
    document.pop("crc", None)
    assert canonical_json(written) == canonical_json(document)


@pytest.mark.parametrize("name", EXAMPLES_2)
def test_fault_39_format_version_2_is_read_for_ever_and_written_as_it_is(name):
    """It is for records with groups of regions alone, so no other record has changed."""
    golden = (GOLDEN / "v2" / f"{name}.json").read_bytes()
    assert json.loads(golden)["format"] == 2
    assert decode_record(IDENTITY, RECORD_KINDS[kind_of(name)].record, golden, where=name) == EXAMPLES_2[name]
    assert encode_record(IDENTITY, EXAMPLES_2[name]) == golden


@pytest.mark.parametrize("name", EXAMPLES_2)
def test_a_group_in_a_record_that_says_format_1_is_refused(name):
    body = encode_record(IDENTITY, EXAMPLES_2[name]).replace(b'"format":2', b'"format":1')
    with pytest.raises(RecordInvalid, match="no group of regions in a record of format 1"):
        decode_record(IDENTITY, RECORD_KINDS[kind_of(name)].record, body, where=name)


@pytest.mark.parametrize("name", EXAMPLES_2)
def test_a_record_of_format_2_without_a_checksum_is_refused(name):
    document = json.loads(encode_record(IDENTITY, EXAMPLES_2[name]))
    del document["crc"]
    with fails_with("record-without-checksum"):
        decode_record(IDENTITY, RECORD_KINDS[kind_of(name)].record, canonical_json(document).encode(), where=name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"keys": []}, "expected keys, each once"),
        ({"keys": ["a", "a"]}, "expected keys, each once"),
        ({"batch_size": 0}, "batches of at least 1"),
        ({"own_fingerprints": [["cleaned", ["1"]]]}, "expected 72 fingerprints, found 1"),
        ({"inputs": [["ranked", "ALL_TO_ALL"]]}, "'by_month', which reads 'ranked' before it"),
        ({"inputs": [["carriers", "POINTWISE"]]}, "equal keys"),
        ({"inputs": [["carriers", "SOMEHOW"]]}, "a DistributionPattern"),
        ({"template": {}}, r"regions\[1\]\.template"),
    ],
)
def test_a_plan_whose_groups_are_no_plan_is_refused(change, said):
    document = json.loads(encode_record(IDENTITY, GROUPED))
    document["body"]["regions"][1] |= change
    with pytest.raises(RecordInvalid, match=said):
        decode_record(IDENTITY, PlanRecord, codec.resealed(document), where="x")


def test_fault_35_every_changed_digit_of_a_record_is_found():
    body = encode_record(IDENTITY, EXAMPLES["outcome"])
    start = body.index(b'"body":')
    end = body.index(b',"crc":')
    changed = 0
    for at in range(start, end):
        if chr(body[at]).isdigit():
            other = body[:at] + (b"1" if body[at] != 0x31 else b"2") + body[at + 1 :]
            with fails_with("record-checksum"):
                decode_record(IDENTITY, Outcome, other, where="x")
            changed += 1
    assert changed > 20


def test_fault_35_control_without_the_checksum_a_changed_digit_is_believed():
    """As in the first journals, whose records are read all the same: there, only the store vouches for the bytes."""
    body = (GOLDEN / "v1" / "outcome.json").read_bytes().replace(b'"attempt":2', b'"attempt":3')
    assert decode_record(IDENTITY, Outcome, body, where="x").attempt == 3


def damaged_in_the_name_of_its_checksum(name: str = "outcome") -> list[bytes]:
    """Every flip of a bit in the name ``crc`` that leaves a document, with one digit of the body changed besides."""
    body = encode_record(IDENTITY, EXAMPLES[name]).replace(b'"attempt":2', b'"attempt":3')
    at = body.index(b'"crc":') + 1
    found = [body[:n] + bytes([body[n] ^ 1 << bit]) + body[n + 1 :] for n in range(at, at + 3) for bit in range(7)]
    return [each for each in found if is_json(each)]


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def test_fault_111_a_record_whose_checksum_was_damaged_in_its_name_is_found():
    damaged = damaged_in_the_name_of_its_checksum()
    assert len(damaged) > 10
    for it in damaged:
        refused(it, r"expected a checksum \(crc\), found none", Outcome)


def test_fault_111_control_where_any_field_may_stand_there_it_is_believed(monkeypatch):
    damaged = damaged_in_the_name_of_its_checksum()
    every = {field for it in damaged for field in json.loads(it)}
    monkeypatch.setattr(codec, "_FIELDS_AT_FIRST", every)
    assert {decode_record(IDENTITY, Outcome, it, where="x").attempt for it in damaged} == {3}


@pytest.mark.parametrize("name", ["", "\ud800"], ids=["empty", "half a character"])
@pytest.mark.parametrize(
    ("record", "change"),
    [
        ("claim", lambda body, name: body.update(region=name)),
        ("claim", lambda body, name: body["inputs"][0].update(region=name)),
        ("outcome", lambda body, name: body["inputs"][0].update(region=name)),
        ("reset", lambda body, name: body.update(region=name)),
        ("plan", lambda body, name: body["regions"][0].update(name=name)),
        ("publish", lambda body, name: body["regions"][0].update(region=name)),
        ("closed", lambda body, name: body["highest"][0].update(region=name)),
        ("assignment", lambda body, name: body.update(vertex=name)),
    ],
)
def test_fault_105_an_id_that_has_no_key_is_refused(record, change, name):
    document = json.loads(encode_record(IDENTITY, EXAMPLES[record]))
    change(document["body"], name)
    refused(codec.resealed(document), "invalid body", RECORD_KINDS[record].record)


@pytest.mark.parametrize(
    ("regions", "said"),
    [
        ([("P", ()), ("C", ("Q",))], "found 'C', which reads 'Q'"),
        ([("C", ("P",)), ("P", ())], "found 'C', which reads 'P'"),
        ([("P", ("P",))], "found 'P', which reads 'P'"),
        ([("P", ()), ("P", ())], "found 'P', a second time"),
    ],
)
def test_fault_105_a_plan_that_is_no_topology_is_refused(regions, said):
    plan = PlanRecord("job", tuple(RegionPlan(name, (), (), inputs, True, None) for name, inputs in regions))
    refused(encode_record(IDENTITY, plan), said, PlanRecord)


def test_a_field_that_came_later_is_not_written_while_it_has_its_default():
    """So a plan, and its hash, stay what they were, and older versions read what does not concern them."""
    plan = RegionPlan("a", ("a",), ("a",), (), True, None)
    marked = replace(plan, reads=("b",), determinism=(("a", Determinism.VERIFY),))
    assert "determinism" not in to_json(plan)
    assert to_json(marked)["determinism"] == [["a", "verify"]]
    record = PlanRecord("job", (marked,))
    assert decode_record(IDENTITY, PlanRecord, encode_record(IDENTITY, record), where="x") == record


def test_the_batch_of_a_subtask_is_written_where_there_is_one():
    alone = SubtaskPlan("by_month", 7, "2013-08")
    assert to_json(alone) == {"of": "by_month", "index": 7, "key": "2013-08"}
    shared = replace(alone, batch=3)
    assert (alone.map_index, shared.map_index) == (7, 3)
    record = PlanRecord("job", (RegionPlan("by_month[2013-08]", (), (), (), True, None, subtask=shared),))
    assert decode_record(IDENTITY, PlanRecord, encode_record(IDENTITY, record), where="x") == record


def test_a_mode_of_a_newer_version_is_refused():
    record = PlanRecord("job", (RegionPlan("a", (), ("a",), (), True, None, determinism=(("a", Determinism.VERIFY),)),))
    document = json.loads(encode_record(IDENTITY, record).replace(b'"verify"', b'"guess"'))
    document["crc"] = codec.checksum(document["body"])
    refused(json.dumps(document).encode(), "a Determinism, one of .*, found 'guess'", PlanRecord)


@pytest.mark.parametrize("digest", [1, ["a"], True])
def test_a_digest_is_a_text(digest):
    body = document("outcome", body={"outputs": [{**MANIFEST, "digest": digest}]})
    refused(body, "digest: expected a text", Outcome)


@pytest.mark.parametrize("path", ["../other/part-0", "a/../../b", "./a", "..", "a\0b"])
def test_fault_86_a_path_out_of_its_place_is_refused(path):
    body = document("outcome", body={"outputs": [{**MANIFEST, "objects": [[path, 1, "e"]]}]})
    refused(body, "stays where it begins", Outcome)
    body = document("outcome", body={"outputs": [{**MANIFEST, "location": f"s3://bucket/{path}/x"}]})
    refused(body, "stays where it begins", Outcome)


def test_fault_86_control_dots_in_names_are_names():
    found = {**MANIFEST, "objects": [["a..b/.hidden/c.", 1, "e"]], "location": "s3://bucket/...x"}
    body = document("outcome", body={"outputs": [found]})
    assert decode_record(IDENTITY, Outcome, body, where="x").outputs[0].objects[0].path == "a..b/.hidden/c."


# strictness


@pytest.mark.parametrize(
    ("field", "other"),
    [("dag_id", "other"), ("run_key", "date 2026-01-02"), ("group_id", "g"), ("kind", "outcome"), ("dag_id", None)],
)
def test_fault_44_a_record_of_another_journal_is_refused(field, other):
    refused(document(**{field: other}), f"belongs to another journal: expected {field}=")


def test_fault_44_control_the_same_bytes_under_their_own_identity_are_read():
    other = RunIdentity("other", IDENTITY.run_key, IDENTITY.group_id)
    assert decode_record(other, Claim, document(dag_id="other"), where="x") == EXAMPLES["claim"]


def test_fault_83_a_newer_format_is_refused_with_an_upgrade_hint():
    refused(document(format=FORMAT_VERSION + 1), "written by a newer version .* Upgrade airflow-recovery")


@pytest.mark.parametrize("version", [None, 0, -1, "1", 1.0, True])
def test_a_format_that_is_no_number_is_refused(version):
    refused(document(format=version), "expected a journal record with a format number")


def test_a_field_of_a_later_minor_version_is_ignored():
    assert decode_record(IDENTITY, Claim, document(body={"later": [1]}), where="x") == EXAMPLES["claim"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"1", b"\xff\xfe", b"{}", b"not json"])
def test_what_is_no_record_is_refused(body):
    refused(body, "expected a|not a valid journal document")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("claim", {"region": 1}),
        ("claim", {"region": None}),
        ("claim", {"region": ["a"]}),
        ("claim", {"attempt": "1"}),
        ("claim", {"attempt": 1.0}),
        ("claim", {"attempt": True}),
        ("claim", {"attempt": -1}),
        ("claim", {"epoch": 7}),
        ("claim", {"inputs": "ab"}),
        ("claim", {"inputs": {"a": 1}}),
        ("claim", {"inputs": [1]}),
        ("claim", {"inputs": [{"region": "a"}]}),
        ("claim", {"inputs": [{"region": "a", "attempt": None}]}),
        ("outcome", {"state": "DONE"}),
        ("outcome", {"cause": "bad luck"}),
        ("outcome", {"spark_seconds": "1"}),
        ("outcome", {"failure": []}),
        ("outcome", {"externals": None}),
        ("outcome", {"outputs": [{"result": "a"}]}),
        ("outcome", {"outputs": [{**MANIFEST, "rows": "5"}]}),
        ("outcome", {"outputs": [{**MANIFEST, "location": None}]}),
        ("outcome", {"outputs": [{**MANIFEST, "managed": "no"}]}),
        ("outcome", {"outputs": [{**MANIFEST, "objects": [["a", "1", "e"]]}]}),
        ("outcome", {"outputs": [{**MANIFEST, "objects": [["a", -1, "e"]]}]}),
        ("outcome", {"outputs": [{**MANIFEST, "objects": ["abc"]}]}),
        ("lost", {"evidence": "abc"}),
        ("lost", {"plan": [["a"]]}),
        ("publish", {"skipped": [1]}),
        ("plan", {"regions": [{}]}),
        ("closed", {"highest": [["raw", 1]]}),
    ],
)
def test_a_field_of_another_type_is_refused(name, body):
    refused(document(name, body=body), "invalid body", RECORD_KINDS[kind_of(name)].record)


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_body_that_is_no_object_is_refused(body):
    found = json.loads(document())
    found["body"] = body
    refused(json.dumps(found).encode(), "invalid body")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_fault_87_a_number_that_is_none_is_refused(number):
    refused(document("outcome").replace(b"1.5", number.encode()), "not a valid journal document", Outcome)


def test_fault_87_a_key_that_appears_twice_is_refused():
    refused(document().replace(b'"writer": "w1"', b'"writer": "w1", "writer": "w2"'), "a key appears twice")


def test_fault_87_control_a_lenient_parser_takes_the_last_of_two_keys():
    assert (
        json.loads(document().replace(b'"writer": "w1"', b'"writer": "w1", "writer": "w2"'))["body"]["writer"] == "w2"
    )


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_fault_87_a_document_that_is_too_deep_is_refused(opening):
    refused(opening * 100_000, "nested deeper than 32 levels")


def test_fault_87_control_without_the_limit_the_parser_gives_up(monkeypatch):
    monkeypatch.setattr(codec, "MAX_DEPTH", 10**9)
    with pytest.raises(RecursionError):
        parse_json(b"[" * 100_000 + b"]" * 100_000, where="x")


def test_fault_87_a_huge_document_is_refused_with_bounded_memory(monkeypatch):
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", 1_000_000)
    body = b"[" + b"{}," * 500_000 + b"{}]"
    tracemalloc.start()
    refused(body, "more than the limit of 1000000")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("outcome", "the outcome of delays, which reads 1 files and makes 2: nothing was written"),
        ("claim", "a claim of"),
    ],
)
def test_a_record_that_nobody_would_read_is_not_written(name, said, monkeypatch):
    record, body = EXAMPLES[name], encode_record(IDENTITY, EXAMPLES[name])
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", len(body))
    assert decode_record(IDENTITY, type(record), checked_record(IDENTITY, record), where="x") == record
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", len(body) - 1)
    refused(body, "more than the limit", type(record))
    with pytest.raises(JobDefinitionError, match=f"found {len(body)} for {said}"):
        checked_record(IDENTITY, record)


@pytest.mark.parametrize("body", [b'"[[[["', rb'"\"[["', b'"\\\\"', rb'["\\", "\"", "[{"]', b"[]]]]", b'"\\'])
def test_brackets_inside_strings_are_no_depth(body):
    assert codec._depth(body) <= 1


@settings(max_examples=200)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_a_damaged_record_is_refused_or_read_but_never_fails_otherwise(name, data):
    body = bytearray(encode_record(IDENTITY, EXAMPLES[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RecordInvalid):
        decode_record(
            IDENTITY, RECORD_KINDS[kind_of(name)].record, bytes(body[: data.draw(st.integers(0, len(body)))]), where="x"
        )
