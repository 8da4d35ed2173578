"""What went before: records as asv's series, and the verdict against them."""
