"""From samples to a verdict: the plan of the rounds, the statistics, ratios, standings and rankings. Pure."""
