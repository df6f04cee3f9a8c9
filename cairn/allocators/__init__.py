"""The allocators: the catalog, discovery on this machine, and how others are fetched and built."""
