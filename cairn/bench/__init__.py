"""The built-in experiments, and the construction of runs from them."""
