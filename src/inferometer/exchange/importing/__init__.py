"""Other tools' results as our runs: one small module per format, each a pure function with checked units."""
