"""Whether numbers are good enough: limits, comparisons, checks against history with change points, and the search for
the highest load. Pure."""
