"""Turns results into text, documents and pictures. Pure; other programs' texts become printable."""
