"""Train causal attention to say the next word of the lesson's sentence, in a few seconds.

    python samples/train_next_word.py

Shows the attention weights before and after. With one sentence to learn it learns it by heart;
what is to be seen is that the weights move and that no word looks ahead.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import attnscope

SENTENCE = "Life is short, eat dessert first"
STEPS = 400


class NextWord(nn.Module):
    """Word and position embeddings, one causal attention, and a score for each word."""

    def __init__(self, words: int, length: int, width: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.attention = attnscope.CausalAttention(width, 2, width)
        self.scores = nn.Linear(width, words)
        for table in (self.words, self.places):  # small, so that the weights start out even
            nn.init.normal_(table.weight, std=0.3)

    def inputs(self, ids: Tensor) -> Tensor:
        """Return what attention sees: (tokens, width)."""
        return self.words(ids) + self.places(torch.arange(len(ids)))

    def forward(self, ids: Tensor) -> Tensor:
        """Return a score for each next word: (tokens, words)."""
        return self.scores(self.attention(self.inputs(ids)))

    def weights(self, ids: Tensor) -> Tensor:
        """Return the attention weights: (tokens, tokens)."""
        with torch.no_grad():
            x = self.inputs(ids)
            return attnscope.attend(self.attention.call(x, x)).weights[0]


def show(labels: tuple[str, ...], weights: Tensor) -> None:
    """Print the weights, a row per word."""
    for label, row in zip(labels, weights.tolist(), strict=True):
        print(f"  {label:10}" + " ".join(f"{weight:.4f}" for weight in row))


def main() -> None:
    """Train, and print loss, weights and what the model says before and after."""
    tokens = attnscope.run_sentence(SENTENCE).queries.tokens
    assert tokens is not None
    ids = torch.tensor(tokens.ids)
    seen, wanted = ids[:-1], ids[1:]
    torch.manual_seed(0)
    model = NextWord(tokens.vocabulary.size, len(seen))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    words = {word_id: piece for piece, word_id in tokens.vocabulary.entries.items()}
    print("weights before:")
    show(tokens.labels[:-1], model.weights(seen))
    for _ in range(STEPS):
        loss = functional.cross_entropy(model(seen), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss after {STEPS} steps: {loss.item():.4f}")
    print("weights after:")
    show(tokens.labels[:-1], model.weights(seen))
    said = [words[int(i)] for i in model(seen).argmax(dim=-1)]
    for end, word in enumerate(said, start=1):
        print(f"  {' '.join(tokens.labels[:end])} → {word}")


if __name__ == "__main__":
    main()
