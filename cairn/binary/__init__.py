"""Reading programs and libraries as files: ELF, scripts, and the allocator that an executable carries."""
