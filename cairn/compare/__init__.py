"""From samples to a verdict: the plan of the rounds, statistics, ratios, standings, rankings."""
