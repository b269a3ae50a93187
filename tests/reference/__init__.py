"""Flink's decisions as Flink states them: oracles that the product's own, smaller rules are held equal to.

    oracle                       what it is the measure of                       held by
    restart_set                  what really runs after a failure                tests/attempt/test_flinks_restart_set
    partition_group_release      `results.release_rule.ReadersLeft`              test_unread
    approximate(_preview)        `streaming.preview`                             test_preview
    execution_topology, -graph   what the three above are told in: subtasks, partitions, groups
    subpartition                 none: Flink's counterpart of a channel, to compare with

No job runs any of this. One goes the other way: `split_exploration` runs the product's own functions through every
order of what processes do.
"""
