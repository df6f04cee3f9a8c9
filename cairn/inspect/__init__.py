"""Reads the memory of a running process from outside: nothing is loaded into it, nothing stops it.

`facts` has the results. `look` puts them together, and the other modules each read one thing.
"""
