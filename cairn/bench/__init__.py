"""The built-in experiments: what each runs, and how a run of it is put together."""
