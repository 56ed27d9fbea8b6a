"""What a person sees: terminal, charts, reports, dashboard, site, CI, notifications. Computes nothing."""
