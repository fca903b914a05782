"""Every numeric operation of the model, one per file: tensors in, tensors out. docs/numerics.md is their contract.

Each file holds the torch definition of its op. A native implementation sits beside it under the same signature, is
compared with it by tolerance, and with itself by bits.

Axes: M tokens of a step, R rows (sequences) of a step, K inputs and N outputs of a layer, Q query heads, H kv heads,
G = Q / H, D head dim, V vocabulary. A KV pool is NLCHTD: N blocks, L layers, C = 2 (K, V), H, T tokens, D.
"""
