"""The families of the fidelity matrix: a literal table, tiny configurations."""

from tests.sources.families.decoders import DECODERS
from tests.sources.families.encoders import ENCODERS
from tests.sources.families.family import Family, Without
from tests.sources.families.hybrids import HYBRIDS
from tests.sources.families.pairs import PAIRS
from tests.sources.families.selective import SELECTIVE
from tests.sources.families.senses import SENSES
from tests.sources.families.without import WITHOUT

FAMILIES = DECODERS | SELECTIVE | HYBRIDS | ENCODERS | PAIRS | SENSES

__all__ = ["FAMILIES", "WITHOUT", "Family", "Without"]
