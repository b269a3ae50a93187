"""Flink's decisions as Flink states them: oracles that the product's own, smaller rules are held equal to.

No job runs any of this. Each module says in its first lines which rule of the product it is the measure of. One goes
the other way: `split_exploration` runs the product's own functions through every order of what processes do.
"""
