"""Our runs in other tools' formats: one small module per format, each a pure function from runs to files."""
