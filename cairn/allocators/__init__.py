"""The allocators: the catalog, which of them are on this machine, and how others are fetched and built."""
