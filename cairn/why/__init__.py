"""Splits the gap between two contenders into parts, and predicts the savings of other allocators.

All functions are pure.
"""

CALIBRATING = "calibration: "
"""The names of the calibration's workloads begin with this."""
