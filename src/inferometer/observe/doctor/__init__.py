"""What will go wrong before it does: facts of a machine are read in one place, and each check is a pure function of
them that reports what it is and what to do. What needs a store or a target is read by `conduct.instrument`."""
