"""Jobs of the console: what `codelet NAME` runs, and the search of the matrix-vector tutorial."""
