"""Other tools' results as runs of ours: one small module per format, each a pure function with its units checked."""
