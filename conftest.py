"""The suite judges this repository with the plugin of this repository, installed or not."""

pytest_plugins = ["perfsuite.plugin"]
