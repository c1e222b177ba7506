"""Pasted text → the same facts as a probe gives. Each reader finds its own tool's output anywhere in a text.

`read(text)` gives a Snapshot of what the text proves, all else None, or None where the tool is not in it; it takes any
text, in linear time, and does not raise. tools.py lists the readers: not here, since probes use some of them too and
would pay for the import of all.
"""
