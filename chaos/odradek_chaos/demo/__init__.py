"""`odradek demo`: the whole of odradek in under a minute, on real processes and real files.

`story.py` runs it, `state.py` is what is known at any moment, `view.py` draws that, `auditing.py` calls the auditor.
"""
