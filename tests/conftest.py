"""What holds for every test: property tests run without a clock and the same way each time."""

import pydantic_ai.models
from hypothesis import settings

# No test asks a real provider: what it says would differ, cost, and need a key.
pydantic_ai.models.ALLOW_MODEL_REQUESTS = False

# No deadline: a loaded machine must not fail a property. Derandomized: a red run is repeatable.
settings.register_profile("duet", deadline=None, derandomize=True, database=None)
settings.load_profile("duet")
