"""Splits the gap between two contenders into parts, and predicts other allocators. Pure."""
