"""An inference engine made of arithmetic, in virtual time or behind a real HTTP server with a log of the truth."""
