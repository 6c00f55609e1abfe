"""What every process needs around its work: settings, logs, metrics, life cycle, HTTP."""
