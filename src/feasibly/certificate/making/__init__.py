"""Making certificates: run the proxy on what it has not seen, and hand the arrays to `promise`."""
