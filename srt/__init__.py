"""The runtime: processes, scheduler, memory, models, kernels, HTTP."""
