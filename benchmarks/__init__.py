"""What recovery costs while nothing fails: ``python -m benchmarks``. Ratios inside one run, never a promise of seconds.

Each benchmark is one file with one function that returns a `benchmarks.report.Report`; `benchmarks.__main__` writes it
to ``benchmarks/results``. Nothing of the product imports this package, and no test asserts what it measures. What is
measured is the installed wheel.
"""

CPU_FILE_VARIABLE = "BENCHMARK_CPU_FILE"
"""Names the file to which every try in the Airflow of a benchmark appends its CPU time."""
