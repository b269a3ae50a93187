"""Faults of attempts once more, with journal and results on an S3 server: of each, one test of a world in memory."""

from __future__ import annotations

from on_s3 import on_s3  # noqa: F401 - for every test
from test_places_used_once import (  # noqa: F401
    test_fault_290_a_number_that_a_backup_gives_again_has_another_folder,
    test_fault_294_a_file_beyond_its_manifest_has_a_result_made_again_elsewhere,
    test_fault_294_what_a_committer_leaves_is_no_file_of_a_result,
)
from test_reconnect import (  # noqa: F401
    test_fault_2_no_job_and_no_sign_another_attempt_is_submitted,
    test_fault_19_a_failed_job_never_counts_as_the_new_one,
    test_fault_20_of_several_attempts_the_newest_is_looked_at,
    test_fault_76_whatever_the_status_says_the_outcome_decides,
    test_faults_13_and_14_one_that_was_taken_for_dead_is_rejected_when_it_wakes,
    test_faults_18_and_77_a_driver_of_the_same_name_with_another_tag_is_not_it,
)
from test_region_task import (  # noqa: F401
    test_fault_5_6_a_finish_of_a_dead_try_is_adopted_without_spark,
    test_fault_13_two_drivers_of_one_region_one_outcome_wins,
    test_fault_14_an_old_attempt_that_finishes_after_the_new_one_committed_is_rejected,
    test_fault_49_a_released_input_restarts_its_producer_and_is_never_read,
)
from test_shared import test_fault_81_a_shared_result_that_a_run_holds_is_never_purged  # noqa: F401
