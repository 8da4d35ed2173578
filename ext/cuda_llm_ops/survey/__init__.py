"""Times cases that nobody tuned, and holds their distribution against rules: `python -m cuda_llm_ops.survey`."""
