"""Compares the machine code of every kernel between two commits: `python -m machine_code OLD NEW`.

A clean-up of device code must not change what the GPU runs. This tool compiles the CUDA sources of both commits and
compares kernel by kernel. Names of symbols, files and functions do not count, because a clean-up changes those.

    revisions.py   the source tree of a commit, or of the working tree
    objects.py     compilation to cubins, cached by the preprocessed text
    cubin.py       reads the kernels out of a cubin
    pairing.py     finds for each old kernel the new one
    comparison.py  what differs between two kernels
    report.py      the table
"""
