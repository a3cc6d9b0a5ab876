"""Pretrained models: loading, their stack of layers, memory, and passes that do less work."""
