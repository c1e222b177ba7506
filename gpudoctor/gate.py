"""Policy, ignores and severities → exit code."""
