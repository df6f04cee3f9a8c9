"""Running programs: one trial, a whole measurement, the proof of what was loaded, and where runs are kept."""
