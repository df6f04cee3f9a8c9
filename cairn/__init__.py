"""Cairn: which allocator should this program use, and why."""

__version__ = "0.1.0"
