"""The runner: PID 1 of a sandbox. It spawns commands, carries their bytes, and ends them.

Standard library only: `bundle.py` sends these modules over the container's stdin at each start,
and there is nothing else of the project inside. It decides nothing about rooms or results: it
reports what the kernel said.
"""
