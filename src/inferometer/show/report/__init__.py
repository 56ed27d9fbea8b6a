"""Reports: what a run, several runs or an experiment tell, as one file that opens anywhere."""
