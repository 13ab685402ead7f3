"""The ways in which two sides work together: one package for each.

A mode is a pair of coroutines, the asking side's and the answering side's. The device chooses the
mode; a cloud serves all of them.
"""
