"""Comparison to text: terminal, Markdown, CSV, JSON. Pure; text that came from outside is made harmless here."""
