"""Reports: a run, several runs or an experiment as one file that opens anywhere."""
