"""Which tokens are pieces of one word: what stands between white space in the text."""

from attnscope.text.display import label
from attnscope.text.tokens import Tokens


def words_of(tokens: Tokens) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the pieces of each word, in order.

    A special token is a word of its own, and so is each token where the tokenizer cannot tell
    which characters it came from.
    """
    words: list[list[int]] = []
    for position in range(len(tokens)):
        if words and _goes_on(tokens, words[-1][-1], position):
            words[-1].append(position)
        else:
            words.append([position])
    return tuple(tuple(word) for word in words)


def word_label(tokens: Tokens, word: tuple[int, ...]) -> str:
    """Return a word as a table shows it: without the space before it."""
    if len(word) == 1 and (tokens.special[word[0]] or not tokens.source(word[0]).strip()):
        return tokens.labels[word[0]]
    start, end = tokens.spans[word[0]][0], tokens.spans[word[-1]][1]
    return label(tokens.text[start:end].strip())


def _goes_on(tokens: Tokens, before: int, here: int) -> bool:
    """Return whether no white space parts two neighbours; a space alone begins a word."""
    if tokens.special[before] or tokens.special[here]:
        return False
    (start, end), (next_start, next_end) = tokens.spans[before], tokens.spans[here]
    if start == end or next_start == next_end:
        return False
    # pieces of one character share its span
    if tokens.text[end:next_start] or tokens.text[next_start].isspace():
        return False
    return not tokens.text[end - 1].isspace() or not tokens.text[start:end].strip(" ")
