"""Plans device memory: models of attention, decoding and training, and measurements to hold them against."""
