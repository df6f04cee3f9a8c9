"""Reads programs and libraries as files: ELF, scripts, and allocators inside executables."""
