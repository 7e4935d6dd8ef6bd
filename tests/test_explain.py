"""An Explanation holds the Run's own numbers, and what lies between them adds up."""

import dataclasses

import pytest
import torch

import attnscope
from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod
from attnscope.attention.masks import from_tensor
from attnscope.attention.result import attend
from attnscope.errors import OptionError
from attnscope.explain import explain, visible_prefixes
from attnscope.run import Run, Settings, axis_of_positions
from tests.conftest import LESSON_SENTENCE

VARIANTS = {
    "self": {},
    "multi-head": {"heads": 4},
    "cross": {"cross": "La vie est courte"},
    "causal": {"causal": True},
    "renormalize": {"causal": True, "mask_method": "renormalize"},
    "everything": {"heads": 2, "cross": "La vie", "causal": True, "align": "bottom-right"},
    "wide": {"d_model": 40, "d_key": 24, "d_value": 12, "heads": 2},
    "float64": {"causal": True, "dtype": "float64"},
}


def run_of_call(call, method=MaskMethod.NEG_INF, dtype="float64"):
    """A run of vectors without words."""
    settings = Settings(
        "tensors", "self", call.heads, call.key_heads, call.query.shape[2], call.value.shape[2],
        False, None, str(method), call.scale, dtype, "cpu", softcap=call.softcap,
    )  # fmt: skip
    queries, keys = axis_of_positions("q", call.queries), axis_of_positions("k", call.keys)
    return Run(settings, queries, keys, (attend(call, method),))


def call_with(seed=3, heads=2, queries=3, keys=5, width=4, **extras):
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randn(heads, n, width, generator=generator, dtype=torch.float64)
        for n in (queries, keys, keys)
    ]
    return AttentionCall(*tensors, **extras)


SEEN = torch.tensor([[True, True, False, True, False], [False] * 5, [False] * 3 + [True] * 2])
RUNS = {
    **{name: lambda o=options: attnscope.run_sentence(LESSON_SENTENCE, **o)
       for name, options in VARIANTS.items()},
    "plain call": lambda: run_of_call(call_with()),
    "mask": lambda: run_of_call(call_with(mask=from_tensor(SEEN))),
    "mask renormalized": lambda: run_of_call(
        call_with(mask=from_tensor(SEEN)), MaskMethod.RENORMALIZE
    ),
    "bias": lambda: run_of_call(call_with(bias=torch.randn(3, 5, dtype=torch.float64))),
    "softcap": lambda: run_of_call(call_with(softcap=0.7, scale=2.0, bias=torch.ones(1, 1, 5))),
    "sinks": lambda: run_of_call(
        call_with(mask=from_tensor(SEEN), sinks=torch.tensor([0.5, -2.0], dtype=torch.float64))
    ),
    "shared keys": lambda: run_of_call(
        AttentionCall(
            torch.randn(4, 2, 3, dtype=torch.float64), *torch.randn(2, 2, 5, 3).double()
        )
    ),
}  # fmt: skip


def steps_by_name(walk, head):
    return {step.name: step for step in walk.steps if step.head in (None, head)}


def column(step, name, table=0):
    place = step.tables[table].columns.index(name)
    return [row[place] for row in step.tables[table].values]


@pytest.mark.parametrize("name", RUNS)
def test_numbers_are_the_runs_own(name):
    run = RUNS[name]()
    result = run.layers[0]
    explanation = explain(run, tuple(range(len(run.queries))), dims=1000)
    for walk in explanation.walks:
        i = walk.query
        for head in range(result.call.heads):
            steps = steps_by_name(walk, head)
            query = result.call.query[head, i].tolist()
            shown = (
                [s.result for s in steps["query"].sums]
                if run.inputs
                else list(steps["query"].tables[0].values[0])
            )
            assert shown == query
            key_head = result.call.key_head(head)
            assert [list(r) for r in steps["keys"].tables[0].values] == (
                result.call.key[key_head].tolist()
            )
            assert [list(r) for r in steps["values"].tables[0].values] == (
                result.call.value[key_head].tolist()
            )
            assert [s.result for s in steps["omegas"].sums] == result.scores[head, i].tolist()
            scaled = result.steps.scaled[head, i].tolist()
            assert column(steps["scaled"], "scaled") == scaled
            assert column(steps["weights"], "weight") == result.weights[head, i].tolist()
            assert [s.result for s in steps["context"].sums] == result.context[head, i].tolist()
            if result.mask_steps is not None:
                unmasked = result.mask_steps.unmasked[head, i].tolist()
                assert column(steps["softmax"], "softmax") == unmasked
                row_sum = float(result.mask_steps.row_sums[head, i])
                assert [s.result for s in steps["weights"].sums] == [row_sum]
        if result.call.heads > 1:
            joined = result.context[:, i].reshape(-1).tolist()
            assert list(steps["concatenation"].tables[0].values[0]) == joined


@pytest.mark.parametrize("dims", [1, 3, 1000])
@pytest.mark.parametrize("name", RUNS)
def test_terms_and_what_is_left_out_add_up(name, dims):
    run = RUNS[name]()
    for walk in explain(run, tuple(range(len(run.queries))), dims=dims).walks:
        for step in walk.steps:
            for worked in step.sums:
                total = sum(term.product for term in worked.terms) + worked.left_out_sum
                assert total == pytest.approx(worked.result, rel=1e-5, abs=1e-5)
                assert len(worked.terms) <= dims
                for term in worked.terms:
                    right = 1.0 if term.right is None else term.right
                    assert term.product == term.left * right
                if worked.left_out:
                    sizes = [abs(term.product) for term in worked.terms]
                    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("block", [1, 2, 3, 6, 100])
def test_flash_ends_in_the_same_row(name, block):
    run = RUNS[name]()
    keys = len(run.keys)
    for walk in explain(run, tuple(range(len(run.queries))), flash=block).walks:
        ends = [step for step in walk.steps if step.name == "flash-end"]
        assert len(ends) == run.layers[0].call.heads
        for end in ends:
            facts = dict(end.facts)
            assert facts["max |Δ| of the weights to this run's"] <= 1e-6
            assert facts["max |Δ| of the context to this run's"] <= 1e-5
        blocks = [step for step in walk.steps if step.name.startswith("flash-")]
        assert len(blocks) == len(ends) * (-(-keys // block) + 1)


def test_the_difference_of_flash_is_not_hidden():
    call = AttentionCall(
        torch.ones(1, 1, 1),
        torch.tensor([[[0.0], [2000.0]]]),
        torch.ones(1, 2, 1),
        mask=from_tensor(torch.tensor([[True, False]])),
        scale=1.0,
    )
    run = run_of_call(call, MaskMethod.RENORMALIZE, "float32")
    (walk,) = explain(run, (0,), flash=1).walks
    facts = dict(walk.steps[-1].facts)
    assert facts["max |Δ| of the context to this run's"] != 0  # NaN: the row sum underflowed


def test_steps_and_their_numbers():
    run = attnscope.run_sentence(LESSON_SENTENCE, causal=True, heads=2)
    (walk,) = explain(run, (1,)).walks
    names = ["token", "embedding", "query", "keys", "values", "omegas", "scaled", "mask",
             "weights", "context", "concatenation"]  # fmt: skip
    assert list(dict.fromkeys(step.name for step in walk.steps)) == names
    for step in walk.steps:
        assert step.number == names.index(step.name) + 1
        assert step.formula
        assert step.sentence.endswith(".")
    assert {step.name: step.shape for step in walk.steps} == {
        "token": (), "embedding": (3,), "query": (2,), "keys": (6, 2), "values": (6, 2),
        "omegas": (6,), "scaled": (6,), "mask": (6,), "weights": (6,), "context": (2,),
        "concatenation": (4,),
    }  # fmt: skip
    for wanted in ("6", "omegas"):
        (only,) = explain(run, (1,), step=wanted).walks
        assert [(step.name, step.head) for step in only.steps] == [("omegas", 0), ("omegas", 1)]
    (one,) = explain(run, (1,), head=1).walks
    assert {step.head for step in one.steps} == {None, 1}
    assert "concatenation" not in {step.name for step in one.steps}


def test_without_words_there_are_no_steps_of_words():
    (walk,) = explain(run_of_call(call_with()), (0,)).walks
    assert walk.steps[0].name == "query"
    assert walk.steps[0].sums == ()
    assert "mask" not in {step.name for step in walk.steps}


def test_a_blind_row_says_so():
    for method in MaskMethod:
        run = run_of_call(call_with(mask=from_tensor(SEEN)), method)
        (walk,) = explain(run, (1,)).walks
        steps = steps_by_name(walk, 0)
        assert "may see no key" in steps["weights"].sentence
        assert "may see no key" in steps["context"].sentence
        assert [s.result for s in steps["context"].sums] == [0.0] * 4


def test_a_blind_row_reads_no_value():
    call = call_with(heads=1, mask=from_tensor(SEEN))
    call.value[0, 2, 0] = torch.nan
    (walk,) = explain(run_of_call(call), (1,)).walks
    assert [(s.terms, s.result) for s in steps_by_name(walk, 0)["context"].sums] == [((), 0.0)] * 4


def test_a_sink_takes_its_part():
    run = RUNS["sinks"]()
    (walk,) = explain(run, (0,)).walks
    step = steps_by_name(walk, 0)["weights"]
    (sink,) = step.tables[1].values
    assert sink[0] == 0.5
    assert sum(column(step, "weight")) + sink[3] == pytest.approx(1.0)
    assert step.sums[0].terms[-1].place == "sink"


def test_hidden_cells_are_marked():
    run = attnscope.run_sentence(LESSON_SENTENCE, causal=True)
    (walk,) = explain(run, (1,)).walks
    steps = steps_by_name(walk, 0)
    assert [row[1] for row in steps["mask"].tables[0].hidden] == [False] * 2 + [True] * 4
    assert [row[0] for row in steps["mask"].tables[0].hidden] == [False] * 6
    assert all(all(row) for row in steps["weights"].tables[0].hidden[2:])


def test_nan_is_kept_and_comes_first():
    call = call_with(heads=1)
    call.value[0, 4, 2] = torch.nan
    run = run_of_call(call)
    (walk,) = explain(run, (0,), dims=1).walks
    (worked,) = steps_by_name(walk, 0)["context"].sums
    assert worked.name == "z2"
    assert worked.terms[0].place == "4 k4"
    assert worked.terms[0].product != worked.terms[0].product


def test_a_hidden_value_that_is_not_a_number_is_shown():
    call = call_with(heads=1, mask=from_tensor(SEEN))
    call.value[0, 2, 0] = torch.inf  # key 2 is hidden from query 0: its weight is 0, 0·∞ is NaN
    (walk,) = explain(run_of_call(call), (0,)).walks
    worked = steps_by_name(walk, 0)["context"].sums[0]
    assert worked.result != worked.result
    assert "2 k2" in {term.place for term in worked.terms}


def test_wide_vectors_say_what_is_left_out():
    run = attnscope.run_sentence(LESSON_SENTENCE, d_model=30, d_key=20, d_value=11)
    (walk,) = explain(run, (2,), dims=4).walks
    steps = steps_by_name(walk, 0)
    result = run.layers[0]
    for step, total, numbers in (
        ("embedding", 30, run.inputs.query_inputs[2]),
        ("query", 20, result.call.query[0, 2]),
        ("context", 11, result.context[0, 2]),
    ):
        (left,) = steps[step].left_out
        assert left.count == total - 4
        assert left.largest == pytest.approx(float(numbers.abs().sort().values[-5]))
    assert [s.left_out for s in steps["query"].sums] == [26] * 4
    assert len(steps["keys"].tables[0].columns) == 4


def test_of_many_keys_the_heaviest_are_worked_out():
    run = attnscope.run_sentence(" ".join(f"w{i}" for i in range(50)))
    (walk,) = explain(run, (7,)).walks
    steps = steps_by_name(walk, 0)
    assert len(steps["omegas"].sums) == 32
    (left,) = steps["omegas"].left_out
    weights = run.layers[0].weights[0, 7].sort(descending=True).values
    assert (left.count, left.largest) == (18, float(weights[32]))
    assert len(steps["scaled"].tables[0].values) == 50


def test_visible_prefixes():
    run = attnscope.run_sentence(LESSON_SENTENCE, causal=True)
    listed = [f"{p.words} → {p.next}" for p in visible_prefixes(run)]
    assert listed == [
        "Life → is", "Life is → short", "Life is short → eat", "Life is short eat → dessert",
        "Life is short eat dessert → first",
    ]  # fmt: skip
    assert visible_prefixes(run)[2].sees == (0, 1, 2)
    assert explain(run, (0,)).prefixes == visible_prefixes(run)
    assert explain(run, (0,), step="1").prefixes == ()
    for options in ({}, {"causal": True, "cross": "a b"}):
        assert visible_prefixes(attnscope.run_sentence("Life is", **options)) == ()
    assert visible_prefixes(attnscope.run_sentence("Life", causal=True)) == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dims": 0}, "--dims 0 is not positive"),
        ({"flash": -1}, "--flash -1 is not positive"),
        ({"head": 1}, "--head 1 is out of range"),
        ({"step": "11"}, '--step "11" is not a step. Give one of: 1 token'),
        ({"step": "\x1b[31m"}, '--step "␛[31m" is not a step'),
    ],
)
def test_wrong_options(options, words):
    run = attnscope.run_sentence("a b")
    with pytest.raises(OptionError) as caught:
        explain(run, (0,), **options)
    assert words in str(caught.value)


def test_documents_are_frozen():
    (walk,) = explain(attnscope.run_sentence("a b"), (0,)).walks
    with pytest.raises(dataclasses.FrozenInstanceError):
        walk.query = 1
