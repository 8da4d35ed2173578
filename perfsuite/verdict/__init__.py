"""What follows: paired statistics and the decision they allow."""
