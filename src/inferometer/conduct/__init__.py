"""The conductors: one file per command that a user can give, each reading like the drawing of the house."""
