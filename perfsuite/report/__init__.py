"""Renders records: terminal, markdown, HTML page, tables in documents."""
