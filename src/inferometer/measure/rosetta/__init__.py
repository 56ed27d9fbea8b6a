"""Our records under other tools' definitions: one module per tool, each a table of what it reports and how."""
