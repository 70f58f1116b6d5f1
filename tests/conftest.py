"""What holds for every test: property tests run without a clock and the same way each time."""

from hypothesis import settings

# No deadline: a loaded machine must not fail a property. Derandomized: a red run is repeatable.
settings.register_profile("duet", deadline=None, derandomize=True, database=None)
settings.load_profile("duet")
