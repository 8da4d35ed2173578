"""What is read: the terminal, markdown."""
