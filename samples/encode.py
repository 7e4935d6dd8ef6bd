"""A program that knows nothing of attnscope: a torch Transformer encodes random vectors.

attnscope record samples/encode.py --tokens 7
"""

import argparse

import torch


def main() -> None:
    """Encode as many vectors as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=5)
    tokens = parser.parse_args().tokens
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(d_model=16, nhead=4, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        encoded = model(torch.randn(1, tokens, 16))
    print(f"{tokens} vectors encoded, the first begins with {float(encoded[0, 0, 0]):.4f}")


if __name__ == "__main__":
    main()
