"""The markers, one file each; `perfsuite.pytest_plugin.marks` finds them by listing this folder."""
