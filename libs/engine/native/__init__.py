"""The engine over the native CPU kernels: numpy and ctypes, no torch."""
