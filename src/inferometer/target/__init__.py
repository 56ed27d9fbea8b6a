"""What is measured: find out what answers at a URL, or start, await, watch and stop a server."""
