"""Four kernels. Each module imports its compiler when it is imported, so import the one that you need."""
