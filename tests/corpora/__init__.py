"""Two corpora of runs that hold the verdict to numbers: sound ones, which it must not doubt, and spoilt ones, which it
must, with the right cause. `python -m tests.corpora` prints the table."""
