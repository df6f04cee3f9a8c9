"""Pages: a report as one HTML file that needs no network, with drawings, tables and raw data."""
