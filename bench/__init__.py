"""Workloads, load generator and micro-benchmarks."""
