"""The only doors to the machine: subprocesses, processes, the clock, the NVML library."""
