"""The conductors: one file per user command. Each calls the other packages in the order of docs/architecture.md."""
