"""The work of the commands, one module for each group of commands that needs the same parts of the package. The
declarations in `inferometer.cli` name these functions; help and completion import nothing from here."""
