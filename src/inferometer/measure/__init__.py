"""Records turned into numbers: the registry of measures, windows, quantiles with intervals, the verdict. Pure."""
