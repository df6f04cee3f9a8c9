"""From the probe's files to tables: reading them, adding processes up, estimating times and shares."""
