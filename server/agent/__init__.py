"""The agent: a participant that talks, runs commands in the room's sandbox, and can be steered.

It uses rooms and execs through the hub like everyone else. Only `models` knows a model library.
"""
