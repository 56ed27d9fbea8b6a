"""Other tools run in our place: a plan rendered for each, and what it wrote imported as a run."""
