"""Fits the constants of the kernels' cost models to times measured on a card: `python -m cost_models MODEL`.

A cost model is a struct of constants in a header and a function that turns a plan and these constants into a time. The
fit changes the constants until the function agrees with the measured times.

    constants.py      reads and writes the structs of constants in a header
    times.py          the file of measured times, and its schema
    host_library.py   compiles a model for the host
    least_squares.py  the fit
    gemm.py           the model of the Hopper GEMM; gemm_model.cpp calls it
    attention.py      the model of the Hopper attention kernels; attention_model.cpp calls it
    measure_gemm.py   times plans of the GEMM on the card at hand
    measure_attention.py  compiles time_attention.cu and times instances on the card at hand
    tables.py         makes the tables of pages that come from surveys
"""
