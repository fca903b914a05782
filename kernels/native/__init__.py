"""The CPU kernels in C++: their C ABI (api.h), their build, and the loading of a library of one instruction level."""
