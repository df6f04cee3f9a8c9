"""Checks of the program and of the machine, before anything is measured."""
