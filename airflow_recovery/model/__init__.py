"""The ground floor: the values that a run's journal is made of, and how they become JSON.

Pure: nothing here does I/O, reads a clock or draws a random number.
"""
