"""Splits the gap between two contenders into parts, and predicts the savings of other allocators.

All functions are pure.
"""
