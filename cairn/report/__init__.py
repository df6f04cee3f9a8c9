"""Turns results into text, documents and pictures.

All functions are pure. Control characters in the texts of other programs are escaped.
"""
