"""What to do: the plan, typed and checked, with its JSON schema; runs nothing."""
