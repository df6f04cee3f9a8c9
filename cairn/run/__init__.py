"""Runs programs: one trial, a whole measurement, the proof of load, and the storage of runs."""
