"""Trains with torch.compile and its CUDA graphs: python3 compiled_graphs.py."""

import compiled_default

if __name__ == "__main__":
    compiled_default.main("reduce-overhead")
