"""The timing model against published measurements: `python -m bench validate`.

The kernels here are written from the published descriptions of the measured ones, for this purpose
only. A row's kernel has the structure that its source describes: loop order, what is loaded where,
how many buffers there are; what the source leaves open is said in the row.
"""
