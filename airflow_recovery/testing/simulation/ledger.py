"""The checker: hears of every change of the stores, in order, and holds the invariants of docs/promises.md against it.

It reads journal objects as JSON and shares no code with the product: neither its records, nor its fold, nor its
verdict. What is wrong is noted and not raised: the code under test would take it for a failure of its own.

    I1  an attempt has one outcome, and no object of the journal is overwritten
    I2  attempts of a region only grow: n is claimed after n-1 has ended, and finishes before n+1 is claimed
    I3  what an attempt names as its inputs had finished when it claimed them
    I4  a finish names objects that are there with that size and etag, unless an outsider took them
    I5  a reset has a cause
    I7  a finished region runs again only for a cause: reset, lost, released, made of other code or other inputs
    I8  nothing is deleted below a pin that is older than the release marker
    I14 what is made of splits has each of them once (`airflow_recovery.testing.simulation.split_ledger`)
    I12 every prefix of the history is a valid state: all of this holds after each change
    I13 the final output is what its region's code makes of the inputs that it names, and these are one cut
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from airflow_recovery.model.names import encode
from airflow_recovery.testing.simulation.region_objects import Region
from airflow_recovery.testing.simulation.sink_ledger import SinkLedger
from airflow_recovery.testing.simulation.split_ledger import SplitLedger

_RUN = r"(?:_shared/[^/]+|[^/_][^/]*/[^/]+/[^/]+)/"
RUN_PREFIX = re.compile(_RUN)
"""What the keys of one run, or of one result that runs share, begin with."""
_KEY = re.compile(
    _RUN + r"(?:t/(?P<region>[^/]+)/(?P<n>\d{8})\."
    r"(?P<kind>claim|outcome|reset|lost|released|committed|committer|confirmed|part)(?:-\d{4})?"
    r"|publish/(?P<publish>\d{8})|(?P<closed>closed)(?:-\d{8})?|plan/(?P<plan>\w+))"
)
_DATA = re.compile(_RUN + r"([^/]+)/(\d{8})(?:-[0-9a-f]{8})?/(.+)")


class Ledger:
    """That of one run, fed by the stores. ``wrote``: the rows that each (region, attempt, result) was computed to have.

    ``modes`` are the determinism modes by region and result, ``unstable`` the regions whose rows differ each time,
    ``sinks`` those that commit, with the mode, ``splits`` those that commit split by split. ``changed``: regions whose
    external inputs have become others, so that they have a cause to run again; ``planned``: those of today's job;
    ``renamed``: of a task that has two names, each with the other one.
    ``shared(key)`` is the ledger of a result that runs share; ``data`` is what is there of all of them, (size, etag) by
    key, and ``wrong`` what was found.
    """

    def __init__(  # noqa: PLR0913 - what the rows of a job depend on
        self,
        regions: Iterable[str],
        finals: Iterable[str],
        modes: Mapping[tuple[str, str], str],
        wrote: MutableMapping[tuple[str, int, str], str],
        sinks: Mapping[str, str],
        splits: Iterable[str] = (),
        *,
        data: MutableMapping[str, tuple[int, str]],
        wrong: list[str],
        shared: Callable[[str], Ledger] | None = None,
    ) -> None:
        self.wrong = wrong
        self.changed: set[str] = set()
        self.splits = SplitLedger(splits, self.wrong)
        self.sinks = SinkLedger(sinks, self.wrong)
        self.regions = {name: Region() for name in regions}
        self.planned = frozenset(self.regions)
        self.renamed: dict[str, str] = {}
        self._names = {encode(name): name for name in self.regions}
        self.finals = tuple(finals)
        self.publishes: dict[int, dict[str, int]] = {}
        self.handed_out: dict[int, frozenset[str]] = {}
        """By publish, the regions of which it hands out results."""
        self.plans: dict[str, dict[str, dict[str, Any]]] = {}
        self._modes = modes
        self.wrote = wrote
        self._touched: set[tuple[str, int]] = set()
        self._data = data
        self._shared = shared
        self.moment = 0
        self._records = {
            "claim": self._claim,
            "outcome": self._outcome,
            "reset": self._reset,
            "lost": self._lost,
            "released": self._released,
            "committed": self._committed,
            "committer": self._turn,
            "confirmed": self._turn,
            "part": self._batch,
        }

    def of_journal(self) -> dict[str, Any]:
        """What it knows from the journal alone."""
        names = ("regions", "publishes", "handed_out", "plans")
        return {name: getattr(self, name) for name in names}

    # what happens

    def journal_put(self, key: str, body: bytes, replaced: bool) -> None:
        """An object of the journal was written."""
        self.moment += 1
        match = _KEY.fullmatch(key)
        if match is None:
            return  # no run's truth
        if replaced:
            self._say(f"I1: {key} was overwritten")
        record = json.loads(body)["body"]
        if match["kind"]:
            self._records[match["kind"]](record["region"], int(match["n"]), record)
        elif match["publish"]:
            self._publish(int(match["publish"]), record)
        elif match["plan"]:
            self.plans[match["plan"]] = {load["name"]: load for load in record["regions"]}
        else:
            for load in record["highest"]:
                region = self.regions[load["region"]]
                region.close(load["attempt"], self.moment)

    def journal_deleted(self, key: str) -> None:
        """An object of the journal was removed: only what a tombstone names may go."""
        self.moment += 1
        match = _KEY.fullmatch(key)
        if match is None:
            return
        if match["publish"]:
            self.publishes.pop(int(match["publish"]), None)
        if not match["kind"]:
            return
        region, n = self.regions[self._names[match["region"]]], int(match["n"])
        if n > region.floor:
            self._say(f"I1: {key} was deleted, and no tombstone names it")
        elif match["kind"] == "claim":
            region.claims.pop(n, None)
        elif match["kind"] == "outcome":
            region.outcomes.pop(n, None)

    def data_put(self, key: str, body: bytes, replaced: bool, etag: str, by: str) -> None:
        """An object of a result was written."""
        self.moment += 1
        match = _DATA.fullmatch(key)
        if match is None:
            return
        self._data[key] = len(body), etag
        if by == OUTSIDER:
            self._touched.add((self._names[match[1]], int(match[2])))
            return
        if self._names[match[1]] in self.splits.regions:
            self.splits.bodies[key] = body.decode()
        if replaced:
            self._say(f"I1: {key} was overwritten by {by}")

    def data_deleted(self, key: str, by: str) -> None:
        """An object of a result was removed."""
        self.moment += 1
        match = _DATA.fullmatch(key)
        if match is None:
            return
        self._data.pop(key, None)
        name, n = self._names[match[1]], int(match[2])
        self._touched.add((name, n))
        if by == OUTSIDER:
            return
        region = self.regions[name]
        if n in region.claims and n not in region.outcomes:
            self._say(f"I8: {by} deletes data of {name}@{n}, which is open")
        marked_at = region.let_go_at(n)
        if name in self.splits.regions:
            newest = self.publishes[max(self.publishes)] if self.publishes else {}
            self.splits.deleted(name, n, key, region, [newest[name]] if name in newest else [], by)
        elif marked_at is None and n > region.floor and not (region.has_failed(n) and by != SWEEPER):
            self._say(f"I8: {by} deletes data of {name}@{n} without a release marker")
        for reader, other in self.regions.items():
            for k, claim in other.claims.items():
                is_older = marked_at is None or other.claimed_at[k] < marked_at
                if k not in other.outcomes and is_older and (name, n) in _refs(claim):
                    self._say(f"I8: {by} deletes data of {name}@{n}, which {reader}@{k} has pinned")

    def table_put(self, key: str, size: int, etag: str) -> None:
        """A snapshot of a table counts, for the first time or again. Its key is a manifest's, as of an object."""
        self.moment += 1
        self._data[key] = size, etag

    def table_lost(self, name: str, n: int, key: str) -> None:
        """It has expired, or its table's branch was moved away."""
        self.moment += 1
        self._data.pop(key, None)
        self._touched.add((name, n))

    # records

    def _claim(self, name: str, n: int, body: dict[str, Any]) -> None:
        region = self.regions[name]
        if n <= region.floor:
            return  # purged: a zombie writes where nobody looks
        if n != region.latest_attempt + 1:
            self._say(f"I2: {name}@{n} was claimed, and the highest attempt was {region.latest_attempt}")
        if n - 1 > region.floor and n - 1 not in region.outcomes:
            self._say(f"I2: {name}@{n} was claimed while {name}@{n - 1} is open")
        for reader, k in _refs(body):
            if not self.regions[reader].has_finished(k) and k > self.regions[reader].floor:
                self._say(f"I3: {name}@{n} reads {reader}@{k}, which has not finished")
        current = region.current
        if current and not self._why_again(name, current, body):
            self._say(f"I7: {name}@{n} was claimed without a cause: {name}@{current} stands and is there")
        self.splits.claimed(name, n, body, region)
        region.claims[n] = body
        region.claimed_at[n] = self.moment

    def _outcome(self, name: str, n: int, body: dict[str, Any]) -> None:
        region = self.regions[name]
        if n <= region.floor:
            return  # purged: a zombie writes where nobody looks
        if n in region.outcomes:
            self._say(f"I1: {name}@{n} has two outcomes: {region.outcomes[n]['state']}, then {body['state']}")
        if n not in region.claims:
            self._say(f"I2: {name}@{n} ended, and nobody has claimed it")
            return
        if n + 1 in region.claims:
            self._say(f"I2: {name}@{n} ended ({body['state']}) after its successor was claimed")
        region.outcomes[n] = body
        if body["state"] != "FINISHED":
            return
        claim = region.claims[n]
        if body["writer"] != claim["writer"]:
            self._say(f"I1: {name}@{n} was finished by another process than the one that claimed it")
        if _refs(body) != _refs(claim):
            self._say(f"I3: {name}@{n} claimed {_refs(claim)} and names {_refs(body)}")
        self.splits.finished(name, n, body, region)
        shared = body.get("shared")
        if shared is not None:
            self._take_over(name, n, shared)
        if name in self.renamed:
            self._adopt(name, n, body)
        for manifest in body["outputs"]:
            self._check_objects(name, n, manifest)
            if name in self.splits.regions:
                self.wrote[name, n, manifest["result"]] = self.splits.rows_of(body, manifest["result"])

    def _batch(self, name: str, n: int, body: dict[str, Any]) -> None:
        self.splits.batch(name, n, body, self.regions[name])

    def _take_over(self, name: str, n: int, shared: dict[str, Any]) -> None:
        """A finish of a result that runs share: what was made there, and was not let go of before."""
        made = self._of(shared)
        key, k = shared["key"], shared["attempt"]
        claimed_at = made.reads_from(name, k, self.regions[name].claims[n]["tag"])
        let_go_at = made.regions[name].let_go_at(k)
        if claimed_at is not None and let_go_at is not None and let_go_at < claimed_at:
            self._say(f"I8: {name}@{n} is the shared {key}@{k}, which was let go of before it was claimed to be read")
        if not made.regions[name].has_finished(k) and k > made.regions[name].floor:
            self._say(f"I3: {name}@{n} is the shared {key}@{k}, which has not finished")
        self.wrote.update({(name, n, result): rows for result, rows in made.rows_of(name, k).items()})

    def _adopt(self, name: str, n: int, body: dict[str, Any]) -> None:
        """What has the writer of a finish under the other name is a copy of that: the same rows."""
        other = self.renamed[name]
        region = self.regions[other]
        for k in region.claims:
            if region.has_finished(k) and region.finish(k)["writer"] == body["writer"]:
                rows = self.rows_of(other, k).values()
                results = [(name, n, output["result"]) for output in body["outputs"]]
                self.wrote.update(zip(results, rows, strict=True))

    def _of(self, shared: dict[str, Any]) -> Ledger:
        assert self._shared is not None
        return self._shared(shared["key"])

    def reads_from(self, name: str, n: int, tag: str) -> int | None:
        """The moment from which on the attempt with that tag has said that it reads ``name@n``."""
        for reader in self.regions.values():
            for k, claim in reader.claims.items():
                if claim["tag"] == tag and (name, n) in _refs(claim):
                    return reader.claimed_at[k]
        return None

    def rows_of(self, name: str, n: int) -> dict[str, str]:
        """The rows of every result that an attempt has computed."""
        return {result: made for (region, k, result), made in self.wrote.items() if (region, k) == (name, n)}

    def may_lack(self, name: str, n: int) -> bool:
        """Somebody has taken something of that attempt away, as an outsider or by the rules."""
        region = self.regions[name]
        return (name, n) in self._touched or n in region.released_at or n <= region.floor

    def _was_touched(self, name: str, n: int) -> bool:
        """Somebody has deleted or overwritten something of what the finish is made of."""
        finish = self.regions[name].finish(n)
        shared = finish.get("shared")
        if shared is not None and self._of(shared).may_lack(name, shared["attempt"]):
            return True
        batches = finish.get("parts", ())
        return any((name, attempt) in self._touched for attempt in (n, *(batch["attempt"] for batch in batches)))

    def _check_objects(self, name: str, n: int, manifest: dict[str, Any]) -> None:
        if self._was_touched(name, n):
            return
        prefix = manifest["location"].partition("://")[2].partition("/")[2]
        for path, size, etag in manifest["objects"]:
            if self._data.get(f"{prefix}/{path}") != (size, etag):
                self._say(f"I4: {name}@{n} names {path} of {manifest['result']}, which is not there like that")

    def _reset(self, name: str, n: int, body: dict[str, Any]) -> None:
        if not body["who"] or not body["why"]:
            self._say(f"I5: the reset of {name}@{n} has no cause")
        # A region's own recompute and the strategy `full` say so; everybody else has to be a person.
        if body["who"] in self.regions and not body.get("epoch") and not body.get("failover"):
            self._say(f"I5: {name}@{n} was reset by {body['who']}, a region")
        self.regions[name].resets.add(n)

    def _lost(self, name: str, n: int, body: dict[str, Any]) -> None:
        if not body["evidence"]:
            self._say(f"I5: {name}@{n} is reported lost without evidence")
        if not self.regions[name].has_finished(n) and n > self.regions[name].floor:
            self._say(f"I3: {name}@{n} is reported lost, and has not finished")
        named = [entry[0] for entry in body["plan"]]
        if len(set(named)) != len(named) or not set(named) <= self.regions.keys():
            self._say(f"I6: the plan of the loss of {name}@{n} names {named}")

    def _released(self, name: str, n: int, body: dict[str, Any]) -> None:
        del body
        region = self.regions[name]
        if n not in region.outcomes and n > region.floor:
            self._say(f"I8: {name}@{n} was released, and has not ended")
        newest = self.publishes[max(self.publishes)] if self.publishes else {}
        # What a sink has taken over is read there.
        is_read = name in self.finals and n not in region.committed
        if is_read and newest.get(name) == n and n == region.current:
            self._say(f"I8: {name}@{n} was released, a final result that is published and current")
        region.released_at.setdefault(n, self.moment)

    def _committed(self, name: str, n: int, body: dict[str, Any]) -> None:
        region = self.regions[name]
        if n <= region.floor:
            return
        if not region.has_finished(n):
            self._say(f"I10: {name}@{n} is committed, and has not finished")
        if body["end"] == "ABANDONED":
            region.abandoned.add(n)
        if body["end"] == "COMMITTED":
            region.committed.add(n)
            if name in self.sinks.modes and (name, n) not in self.sinks.ever_applied:
                self._say(f"I10: {name}@{n} is said to be committed, and its sink has never had it")

    def _turn(self, name: str, n: int, body: dict[str, Any]) -> None:
        region = self.regions[name]
        if n > region.floor and (not region.has_finished(n) or body["turn"] < 1):
            self._say(f"I10: turn {body['turn']} of {name}@{n}, which has not finished")

    def _publish(self, k: int, body: dict[str, Any]) -> None:
        if k != max(self.publishes, default=0) + 1:
            self._say(f"I2: publish {k} follows publish {max(self.publishes, default=0)}")
        cut = {entry["region"]: entry["attempt"] for entry in body["regions"]}
        self.publishes[k] = cut
        self.handed_out[k] = frozenset(entry["region"] for entry in body["regions"] if entry["results"])
        for name in self.finals:
            if not {name, self.renamed.get(name, name)} & {*cut, *body["skipped"]}:
                self._say(f"I13: publish {k} lacks {name}")
        if any(n <= self.regions[name].floor for name, n in cut.items()):
            return  # purged: the next sweep takes it away
        bad = self.why_incoherent(cut)
        if bad is not None:
            self._say(f"I13: publish {k} is no cut: {bad}")

    # what is derived

    def current(self) -> dict[str, int]:
        """The finish that counts of every region that is planned; 0 where there is none."""
        return {name: region.current for name, region in self.regions.items() if name in self.planned}

    def fingerprint_of(self, name: str, n: int) -> str | None:
        """Of which code a finish is."""
        return self.regions[name].outcomes.get(n, {}).get("fingerprint")

    def why_incoherent(self, cut: Mapping[str, int], asked_for: Mapping[str, int] | None = None) -> str | None:
        """Do the final results of ``cut`` rest on one attempt a region, or on rows that count as the same?

        ``asked_for``: attempts up to these were reset by somebody who was told that it is done.
        """
        above = asked_for or {}
        for name, n in cut.items():
            if n <= above.get(name, 0):
                return f"the restart of {name}@{above[name]} was not done"
        # Not those of which the run has made none: whether it may lack them is asked elsewhere.
        todo = [(name, cut[name]) for name in self.finals if name in cut]
        seen: dict[str, int] = {}
        while todo:
            name, n = todo.pop()
            if not self.regions[name].has_finished(n):
                return f"{name}@{n} has not finished"
            if n <= above.get(name, 0):
                return f"the results rest on {name}@{n}, which was reset"
            if seen.setdefault(name, n) != n:
                return f"the results rest on {name}@{n} and on {name}@{seen[name]}"
            for producer, k in _refs(self.regions[name].finish(n)):
                counts = cut.get(producer, 0)
                todo.append((producer, counts if counts and self._is_as_good(name, n, producer, k, counts) else k))
        return None

    def why_wrong_rows(self, cut: Mapping[str, int], fold: Any) -> str | None:
        """Are the rows of every finish of ``cut`` what its code makes of the inputs that it names?

        ``fold(region, result, fingerprint, rows read)`` gives all the rows that an attempt may have written, with
        what there is outside now.
        """
        for name, n in cut.items():
            finish = self.regions[name].finish(n)
            for manifest in finish["outputs"]:
                made = self.wrote.get((name, n, manifest["result"]))
                read = self._rows_read(finish)
                if made not in fold(name, manifest["result"], finish["fingerprint"], read):
                    return f"{manifest['result']} of {name}@{n} is not what its inputs make"
        return None

    def _rows_read(self, finish: dict[str, Any]) -> list[str]:
        plan = self.plans[self.regions[finish["region"]].claims[finish["attempt"]]["plan_hash"]]
        reads = plan[finish["region"]].get("reads", [])
        return [
            self.wrote[producer, k, result]
            for producer, k in _refs(finish)
            for result in plan[producer]["results"]
            if not reads or result in reads
        ]

    def is_there(self, name: str, n: int) -> bool:
        """Every object that the finish names is there as it was written."""
        return not self.regions[name].released_at.get(n) and all(
            self._data.get(f"{manifest['location'].partition('://')[2].partition('/')[2]}/{path}") == (size, etag)
            for manifest in self.regions[name].finish(n)["outputs"]
            for path, size, etag in manifest["objects"]
        )

    def _is_as_good(self, reader: str, n: int, producer: str, read: int, now: int) -> bool:
        """By what the producer declares: any finish, or one with the same rows (the real ones, not their digests)."""
        if read == now:
            return True
        plan = self.plans[self.regions[reader].claims[n]["plan_hash"]]
        wanted = plan[reader].get("reads", [])
        for result in plan[producer]["results"]:
            if wanted and result not in wanted:
                continue
            mode = self._modes.get((producer, result), "always")
            if mode == "always":
                return False
            if mode == "verify" and self.wrote.get((producer, read, result)) != self.wrote.get((producer, now, result)):
                return False
        return True

    def _why_again(self, name: str, n: int, claim: dict[str, Any]) -> str | None:
        """A cause for running ``name`` though ``name@n`` has finished, by anything that has ever happened to it."""
        region = self.regions[name]
        if self._was_touched(name, n) or n in region.released_at:
            return "its data is gone"
        if (region.finish(n).get("xcoms") or {}).get("digest") == "":
            return "its XComs can't be pushed again"
        if n in region.abandoned:
            return "its sink will never have it"
        if name in self.changed:
            return "its input has changed"
        made_by = region.claims.get(n, {})
        if claim.get("after_clear") and any(
            made_by.get(key) != claim.get(key) for key in ("airflow_run_id", "max_tries")
        ):
            return "its task was cleared, and its code can't be seen"
        plan = self.plans.get(claim["plan_hash"], {})
        if plan and plan[name]["fingerprint"] != region.finish(n)["fingerprint"]:
            return "its code has changed"
        absent = set(region.finish(n).get("absent", ()))
        if absent != set(claim.get("absent", ())):
            return "other inputs are absent"
        if plan and set(plan[name].get("inputs", ())) - absent != {producer for producer, _ in _refs(region.finish(n))}:
            return "it reads other regions"
        if plan and plan[name].get("fixed") and region.latest_attempt > n:
            return "a later attempt may have been committed to its table"
        for producer, k in _refs(region.finish(n)):
            other = self.regions[producer]
            if k <= max([other.floor, *other.resets]) or any(
                other.has_finished(outcome) for outcome in other.outcomes if outcome > k
            ):
                return f"{producer}@{k} was made again, or was to be"
        return None

    def _say(self, what: str) -> None:
        self.wrong.append(what)


class SharedLedger(Ledger):
    """That of one result that ``runs`` share: ``makers`` are made there; every reader is a region of its own name."""

    def __init__(
        self,
        makers: Iterable[str],
        modes: Mapping[tuple[str, str], str],
        wrote: MutableMapping[tuple[str, int, str], str],
        data: MutableMapping[str, tuple[int, str]],
        wrong: list[str],
        runs: Callable[[], Iterable[Ledger]],
    ) -> None:
        self._runs = runs
        self._makers = frozenset(makers)
        super().__init__(self._makers, (), modes, wrote, {}, data=data, wrong=wrong)

    def _claim(self, name: str, n: int, body: dict[str, Any]) -> None:
        if name in self._makers:
            super()._claim(name, n, body)
            return
        self._names[encode(name)] = name
        reader = self.regions.setdefault(name, Region())
        reader.claims[n], reader.claimed_at[n] = body, self.moment
        for made, k in _refs(body):
            if not self.regions[made].has_finished(k) and k > self.regions[made].floor:
                self._say(f"I3: {name}@{n} reads {made}@{k}, which has not finished")

    def _outcome(self, name: str, n: int, body: dict[str, Any]) -> None:
        if name in self._makers:
            super()._outcome(name, n, body)
            return
        if n not in self.regions[name].claims or n in self.regions[name].outcomes:
            self._say(f"I1: the reader {name}@{n} has ended twice, or has never begun")
        self.regions[name].outcomes[n] = body

    def data_deleted(self, key: str, by: str) -> None:
        """As of a run; and no run may hold what is deleted."""
        super().data_deleted(key, by)
        match = _DATA.fullmatch(key)
        if match is None or by == OUTSIDER:
            return
        name, n, shared = self._names[match[1]], int(match[2]), key.split("/")[1]
        for ledger in self._runs():
            k = ledger.regions[name].current
            ref = ledger.regions[name].finish(k).get("shared") if k else None
            if ref is not None and (ref["key"], ref["attempt"]) == (shared, n) and not ledger.may_lack(name, k):
                self._say(f"I8: {by} deletes data of the shared {name}@{n}, which a run holds as {name}@{k}")

    def journal_deleted(self, key: str) -> None:
        """As of a run. A reader's records may go once it has ended."""
        match = _KEY.fullmatch(key)
        name = self._names[match["region"]] if match is not None and match["kind"] else None
        if name is None or name in self._makers:
            super().journal_deleted(key)
        elif match is not None and int(match["n"]) not in self.regions[name].outcomes:
            self._say(f"I8: {key} was deleted, and its run reads the shared result")


OUTSIDER = "outsider"
SWEEPER = "gc"
"""The process that lets go of what others have made. Whoever was fenced may remove what it has written itself."""


def _refs(body: Mapping[str, Any]) -> list[tuple[str, int]]:
    return sorted((ref["region"], ref["attempt"]) for ref in body["inputs"])
