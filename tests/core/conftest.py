"""Settings of hypothesis for the core's tests: reproducible, and no deadline on a busy machine."""

from hypothesis import settings

settings.register_profile("core", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("core")
