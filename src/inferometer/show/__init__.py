"""Output for people: terminal, charts, reports, dashboard, site, CI, notifications. Computes nothing."""
