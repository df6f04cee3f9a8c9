"""Plans: many programs under many contenders, as one run; docs/matrix.md describes them."""

EXPERIMENT = "matrix"
"""The beginning of `Run.experiment` of a run of a plan; the name of the plan follows."""
