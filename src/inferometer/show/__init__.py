"""What a person sees. Computes nothing."""
