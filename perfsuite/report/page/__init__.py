"""The HTML page of a record and its history: what needs attention, all cases in a grid, and each case in depth."""
