"""The pipeline in Luigi: ``python luigi_pipeline.py FOLDER``. A result is there where its ``_SUCCESS`` is."""

import sys

import luigi  # type: ignore[import-not-found]
from steps import AT_ONCE, SINKS, STEPS, submit  # type: ignore[import-not-found]


class Step(luigi.Task):  # type: ignore[misc]
    name = luigi.Parameter()
    folder = luigi.Parameter()

    def requires(self) -> "list[Step]":
        return [Step(name, self.folder) for name in STEPS[self.name]]

    def output(self) -> object:
        return luigi.LocalTarget(f"{self.folder}/{self.name}/_SUCCESS")

    def run(self) -> None:
        submit(self.name, self.folder)


if __name__ == "__main__":
    wanted = [Step(name, sys.argv[1]) for name in SINKS]
    sys.exit(0 if luigi.build(wanted, local_scheduler=True, workers=AT_ONCE, log_level="WARNING") else 1)
