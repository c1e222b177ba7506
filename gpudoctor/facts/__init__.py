"""What a machine or a job is: frozen structs, one file a subject; no I/O and no opinions.

In every struct None means that the machine gave no answer, and zero (or an empty tuple) is an answer.
"""
