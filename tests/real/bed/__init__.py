"""The bed for tests on the real vLLM: installation, tiny model, planted defects, counted launches, recorded logs."""
