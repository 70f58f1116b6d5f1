"""No test of the agent asks a real model."""

import pydantic_ai.models
import pytest

from server.agent import loop

pydantic_ai.models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr(loop, "BACKOFF_S", 0.001)
