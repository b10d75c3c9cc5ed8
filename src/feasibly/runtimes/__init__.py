"""Proxies as files for other runtimes: StableHLO for whatever runs JAX or XLA, ONNX for whatever runs ONNX."""
