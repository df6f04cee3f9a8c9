"""Reads the probe's files, adds up processes, and estimates times and shares for tables."""
