"""Gates: what `pytest --gpu` and `nox -s bench` judge."""
