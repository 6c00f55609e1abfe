"""A server that behaves like SGLang towards an agent and a gateway: the simulated engine's steps,
memory and answers, with SGLang's ways with adapters, its routes and its metrics.

What it does was read in SGLang's source, named file by file; no SGLang has run beside it.
"""
