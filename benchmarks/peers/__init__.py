"""What people use today, beside this project, in one call: the same eight applications, the same disturbances.

| file | what it is |
| --- | --- |
| `comparison.py` | the disturbances, and what is measured of them |
| `systems.py` | how each system starts the pipeline, and what a person does with it after a failure |
| `flights/` | the pipeline: its steps, the application, and its declaration for each system but Airflow |
| `declarative.py` | Spark's own declarative pipelines, which are one application |
| `../dags/peers_*.py` | the declarations for Airflow: with drop-in operators, and with Airflow's own |
| `requirements.txt` | what is installed for it, into `build/peers` |
| `flink_scheduler/` | Flink's own scheduler, which `benchmarks.planner` measures |
"""
