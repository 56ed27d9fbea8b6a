"""Other tools' plans, read as they are: each module turns one tool's files or command line into a plan of ours."""
