"""A real model, from a folder, a .gguf file or the hub, and the texts that it is given.

`place` finds a model and checks its files, without torch. `loaded` loads it with transformers,
`cut` cuts texts with its tokenizer, `batch` feeds them to it, `generate` continues them.
Nothing in a model folder is ever run: no remote code, no pickled objects.
"""
