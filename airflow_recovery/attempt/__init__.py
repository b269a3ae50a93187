"""One try of one region's task, from the pre-check to the final check (docs/protocol.md#one-try).

    region_task        which of the following one listing of the journal asks for
    first_attempt      nothing has ever failed: only the inputs are looked at
    reconnect          an earlier try left its attempt open, and its driver lives: it is waited for
    previous_attempt   ... and it does not live, or nobody would use its result: it is ended
    commit             a finish is not committed to its sink: it is rolled forward
    recompute          everything runs again, once an epoch
    failover_restart   a failure restarts others too: the whole job, or all subtasks of a vertex
    clear_producers    an input is lost: its producer's task is cleared
    restarts           how often, and when, a failed region may run again
    attempt            claimed, run, finished or ended by `failed_attempt`
    final_check        before every success: who rests on what was superseded?

Speaks to the journal, to the results and to Airflow through interfaces that are handed in, so that the same code runs
in a worker, in a simulation and in a test. Never imports Airflow or Spark.
"""
