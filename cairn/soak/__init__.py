"""Judges the memory of a program over time: leak, fragmentation, retention, or stable.

`trend` measures growth with intervals, `judge` has the rules for one run, and `verdict` joins the
runs of each contender and compares contenders. docs/soak.md has the rules in words. All functions
are pure.
"""
