"""The project's tests that pytest runs share options and labs."""

pytest_plugins = ["harness.plugin"]
