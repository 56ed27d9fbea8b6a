"""Readers of other tools' plans: each module converts one tool's files or command line to a plan of ours."""
