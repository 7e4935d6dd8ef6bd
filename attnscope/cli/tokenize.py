"""`attnscope tokenize`: a text and its tokens."""

from attnscope.cli import options as o
from attnscope.cli.output import prepare, say
from attnscope.cli.text_input import read_text
from attnscope.cli.tokenizers import Cutting
from attnscope.errors import OptionError
from attnscope.views.look import Look


def command(
    text: o.TextArgument = None,
    file: o.File = None,
    tokenizer: o.Tokenizer = None,
    vocabulary: o.VocabularyFile = None,
    keep_punctuation: o.KeepPunctuation = False,
    save_tokenizer: o.SaveTokenizer = None,
    format_: o.FormatOption = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
    color: o.Color = o.ColorMode.AUTO,
    width: o.Width = None,
) -> None:
    """Cut a text into tokens and show ids, spans and the vocabulary.

    Without --tokenizer, words, numbers, single CJK characters and symbols are tokens, and the
    vocabulary is built from the text itself.
    """
    target = prepare(format_, json, output, force, color, width, other_files=[save_tokenizer])
    cutting = Cutting(tokenizer, vocabulary, keep_punctuation, save_tokenizer, force)
    given = read_text(text, file)
    if given is None:
        raise OptionError(
            "there is no text", 'Give a sentence in quotes, "-" for standard input, or --file'
        )
    (tokens,) = cutting.cut(given)
    cutting.save_if_asked()
    say("note", tokens.vocabulary.notes)
    if target.format is o.Format.JSON:
        from attnscope.views.json_text import render_tokens

        target.write(render_tokens(tokens))
        return
    from attnscope.views.tokens_parts import document_of_tokens

    target.write_parts(document_of_tokens(tokens), Look(width=target.width))
