"""Why two contenders differ: the gap taken apart, what is kept of a profile, and predictions. Pure."""
