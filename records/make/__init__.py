"""Makes the records of this machine's cards within a time: `python -m records.make --output FOLDER --seconds N`."""
