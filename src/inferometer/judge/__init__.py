"""Whether numbers are good enough: limits, and later comparisons and change points. Pure."""
