"""The simulated engine: vLLM's API, metrics, scheduler and adapter behaviour, without a GPU.

Pure state machines (`profiles`, `slots`, `kv_blocks`, `batch`, `prompts`) know no I/O and get the
time as an argument; the shell around them (`steps`, `server`, `openai_api`, `metrics_page`) speaks
HTTP. What it copies is held to the real engine by one contract suite.
"""
