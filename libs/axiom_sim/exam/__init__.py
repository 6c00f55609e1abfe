"""The exam: scenarios run under policies and bounds, over many processes, and their figures."""
