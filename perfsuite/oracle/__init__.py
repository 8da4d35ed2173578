"""Is it right: an FP64 reference, and a tolerance set by the library's own error."""
