"""The Axiom extension for vLLM: exact residency and requests in flight, told as they change.

One half lives in the worker (`worker.WorkerExtension`), one in the API server
(`middleware.Middleware`). It needs nothing but Python, and vLLM only where it runs in one.
"""
