"""Reports: a run, several runs or an experiment as one self-contained file."""
