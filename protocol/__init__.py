"""The wire contract and nothing else: names, limits, errors, commands, events and codecs.

Pure, without I/O; `client.py` is the one module that opens a connection.
"""
