"""`attnscope schema`: the JSON Schema of every JSON document."""

from attnscope.cli import options as o
from attnscope.cli.output import prepare


def command(output: o.Output = None, force: o.Force = False) -> None:
    """Print the JSON Schema of everything that --json writes."""
    target = prepare(o.Format.JSON, False, output, force)

    import orjson

    from attnscope.views.schema import SCHEMA

    target.write(orjson.dumps(SCHEMA, option=orjson.OPT_INDENT_2).decode() + "\n")
