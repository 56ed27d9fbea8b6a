"""When to send: arrival processes (pure, seeded) and the drive loop, on a real or a virtual clock."""
