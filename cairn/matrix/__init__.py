"""Plans: many programs under many contenders, as one run; docs/matrix.md describes them."""
