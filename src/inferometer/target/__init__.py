"""The measured servers: detect what answers at a URL; or start a server, wait for it, watch it and stop it."""
