"""The HTML page: what it holds, how large it is, and what it does in a real browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.engine import MaskMethod
from attnscope.attention.masks import CAUSAL, EVERYTHING, from_tensor
from attnscope.attention.result import attend
from attnscope.errors import SizeError
from attnscope.library import run_sentence
from attnscope.run import Axis, Run, Settings, axis_of_positions
from attnscope.views.html_page import render_html
from attnscope.views.look import Look
from attnscope.views.style import tint
from tests.views import handmade
from tests.views.browser import browser  # noqa: F401

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--",
    "--><img src=x onerror=alert(2)>",
    "\"'`&quot;",
    "\u202eabc",
    "\0",
    "\u2028",
    "{{script}}",
    "\ud800",
)


def made_run(
    heads=1, tokens=5, width=8, *, keys=None, key_heads=None, layers=1, mask=CAUSAL,
    dtype=torch.float32, labels=None, method=MaskMethod.NEG_INF, **more,
):  # fmt: skip
    """Return a run of random vectors; its layers are the same one, again and again."""
    draw = torch.Generator().manual_seed(7)
    keys, key_heads = keys or tokens, key_heads or heads
    shapes = ((heads, tokens), (key_heads, keys), (key_heads, keys))
    vectors = (torch.randn(*shape, width, generator=draw).to(dtype) for shape in shapes)
    result = attend(AttentionCall(*vectors, mask=mask, **more), method)
    settings = Settings(
        "tensors", "causal", heads, key_heads, width, width, True, None, str(method),
        result.call.scale, str(dtype).removeprefix("torch."), "cpu",
    )  # fmt: skip
    queries = axis_of_positions("q", tokens) if labels is None else Axis(tuple(labels))
    other = queries if keys == tokens else axis_of_positions("k", keys)
    return Run(settings, queries, other, (result,) * layers)


class Elements(HTMLParser):
    """Collects the elements of a page, and what stands in its scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.meta, self.inside = [], [], {}, None
        self.style = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.inside = tag
        if tag == "script":
            self.scripts.append([attributes, ""])
        if tag == "meta":
            self.meta[attributes.get("http-equiv", attributes.get("name"))] = attributes.get(
                "content"
            )

    def handle_endtag(self, _tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1][1] += data
        if self.inside == "style":
            self.style += data

    @property
    def data(self):
        return {at["id"]: json.loads(text) for at, text in self.scripts if "id" in at}


def forms(page):
    blocks = Elements(page).data
    return {name[5:]: block["form"] for name, block in blocks.items() if name.startswith("head-")}


def numbers(text, kind="<f4"):
    return np.frombuffer(base64.b64decode(text), kind)


# What the page holds


def test_the_policy_allows_this_script_and_this_style_only():
    page = Elements(render_html(made_run()))
    policy = dict(
        part.strip().split(" ", 1) for part in page.meta["Content-Security-Policy"].split(";")
    )
    code = [text for attributes, text in page.scripts if "type" not in attributes]
    assert len(code) == 1

    def hashed(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "script-src": hashed(code[0]),
        "style-src": hashed(page.style),
        "worker-src": "blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_asks_for_nothing():
    page = render_html(made_run())
    bare = re.sub(r"[A-Za-z0-9+/=]{60,}", "", page)  # base64 may hold //
    assert not re.search(r"https?:", bare)
    assert not re.search(r"""["'(=]\s*//""", bare)
    assert not re.search(r"\b(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest|import\(", bare)
    assert not set(Elements(page).tags) & {"link", "img", "iframe", "object", "base", "form"}


def test_hostile_labels_make_no_element():
    tame = Elements(render_html(made_run(tokens=len(HOSTILE), labels=["a"] * len(HOSTILE))))
    page = render_html(made_run(tokens=len(HOSTILE), labels=HOSTILE))
    hostile = Elements(page)
    assert hostile.tags == tame.tags
    assert [at for at, _ in hostile.scripts] == [at for at, _ in tame.scripts]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", page)
    page.encode()
    shown = hostile.data["run"]["queries"]
    assert shown[:2] == list(HOSTILE[:2])
    assert shown[4:6] == ["⟨U+202E⟩abc", "␀"]


def test_a_hostile_text_makes_no_element():
    page = Elements(render_html(run_sentence("</title><script>alert(1)</script> b")))
    assert page.tags == Elements(render_html(run_sentence("a b"))).tags


def test_the_same_run_gives_the_same_bytes():
    assert render_html(made_run(heads=2)) == render_html(made_run(heads=2))


def test_numbers_of_a_head_are_stored_as_vectors():
    run = made_run(heads=4, key_heads=2)
    blocks, call = Elements(render_html(run)).data, run.layers[0].call
    assert set(forms(render_html(run)).values()) == {"vectors"}
    assert sorted(name for name in blocks if name.startswith("key-")) == ["key-0-0", "key-0-1"]
    assert blocks["head-0-3"]["key"] == "key-0-1"
    assert (numbers(blocks["head-0-3"]["query"]) == call.query[3].numpy().ravel()).all()
    assert (numbers(blocks["key-0-1"]["data"]) == call.key[1].numpy().ravel()).all()
    assert blocks["mask-0"] == {"kind": "causal", "offset": 0}


@pytest.mark.parametrize(
    ("mask", "offset", "kind"),
    [(EVERYTHING, 0, "none"), (CAUSAL, 2, "causal"), (from_tensor(torch.eye(5) > 0), 0, "bits")],
)
def test_a_mask_is_a_rule_where_it_is_one(mask, offset, kind):
    run = made_run(mask=mask, query_offset=offset)
    stored = Elements(render_html(run)).data["mask-0"]
    assert stored["kind"] == kind
    if kind == "causal":
        assert stored["offset"] == offset
    if kind == "bits":
        bits = np.unpackbits(numbers(stored["data"], "u1"), bitorder="little")[:25]
        assert (bits.reshape(5, 5) == np.eye(5)).all()


@pytest.mark.parametrize(
    ("run", "form"),
    [
        (made_run(method=MaskMethod.RENORMALIZE), "cells"),
        (made_run(dtype=torch.float16), "cells"),
        (made_run(dtype=torch.bfloat16), "cells"),
        (handmade.run(), "cells"),
        (made_run(bias=torch.full((5, 5), torch.inf)), "cells"),
        (made_run(softcap=2.0, bias=torch.ones(5), sinks=torch.ones(1)), "vectors"),
        (made_run(mask=from_tensor(torch.zeros(5, 5) > 0)), "vectors"),
    ],
    ids=["renormalize", "float16", "bfloat16", "observed", "infinite", "extras", "blind"],
)
def test_what_the_formula_does_not_give_is_stored_as_cells(run, form):
    assert set(forms(render_html(run)).values()) == {form}


def test_a_small_float64_run_stays_float64():
    run = made_run(dtype=torch.float64)
    head = Elements(render_html(run)).data["head-0-0"]
    assert head["double"]
    assert (numbers(head["query"], "<f8") == run.layers[0].call.query[0].numpy().ravel()).all()
    large = made_run(tokens=4000, keys=2, dtype=torch.float64, width=32, mask=EVERYTHING)
    assert not Elements(render_html(large)).data["head-0-0"]["double"]


def test_one_head_can_be_chosen():
    page = Elements(render_html(made_run(heads=4), Look(head=2))).data
    assert page["run"]["layers"][0]["heads"] == [2]
    assert [name for name in page if name.startswith("head-")] == ["head-0-2"]


def test_warnings_and_agreement_are_told():
    page = Elements(render_html(replace(made_run(), warnings=("watch\x1b out",)))).data["run"]
    assert page["warnings"] == ["watch␛ out"]
    assert page["layers"][0]["agreement"].startswith("agrees with torch: max |Δ| = ")


# How large it is


def test_size_of_twelve_layers_of_512_tokens():
    run = made_run(heads=12, tokens=512, width=64, layers=12)
    page = render_html(run)
    assert len(page) < 53_000_000
    assert len(page) / (144 * 512 * 512) < 1.4
    assert set(forms(page).values()) == {"vectors"}
    with pytest.raises(SizeError, match=r"50\.\d MB, above the budget of 50\.0 MB"):
        render_html(run, budget_bytes=50_000_000)


def test_size_of_one_head_of_4096_tokens():
    assert len(render_html(made_run(tokens=4096, width=64))) < 3_000_000


def test_size_of_many_short_heads():
    run = made_run(heads=12, tokens=128, width=64, layers=12)
    page = render_html(run)
    assert set(forms(page).values()) == {"bytes"}
    assert len(page) / (144 * 128 * 128) < 1.4
    stored = numbers(Elements(page).data["head-3-5"]["bytes"], "u1")
    assert (stored == np.rint(255 * run.layers[3].weights[5].numpy().ravel())).all()


@pytest.mark.parametrize(
    "run",
    [made_run(), made_run(heads=3, key_heads=1, tokens=40), handmade.run(heads=2)],
    ids=["one head", "shared keys", "cells"],
)
def test_the_budget_is_held_to_the_estimate(run):
    size = len(render_html(run).encode())
    with pytest.raises(SizeError) as caught:
        render_html(run, budget_bytes=size // 2)
    assert "--head" in caught.value.hint
    render_html(run, budget_bytes=size + 8_000)  # the estimate is not far above the truth


# What it does in a browser


@pytest.fixture
def show(browser, tmp_path):  # noqa: F811
    def opened(run, look=Look(), **window):  # noqa: B008
        path = tmp_path / "page.html"
        path.write_text(render_html(run, look), encoding="utf-8")
        browser.open(path, **window)
        return browser

    yield opened
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith(("file:", "blob:"))] == []


def pixel(page, row, column, part=0.2, down=0.2):
    """Return the colour near a cell's corner, where no number stands."""
    return page.do(
        f"(() => {{ const box = attnscopeCellBox({row}, {column});"
        "const edge = canvas.getBoundingClientRect();"
        f"const x = box.left - edge.left + box.width * {part};"
        f"const y = box.top - edge.top + box.height * {down};"
        "return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3); })()"
    )


def centre(page, row, column):
    box = page.do(f"attnscopeCellBox({row}, {column})")
    return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2


def shade(weight):
    return list(tint(round(255 * weight) / 255)[0])


def cells(page, layer, head, places):
    rows, columns = [int(i) for i, _ in places], [int(j) for _, j in places]
    return page.do(f"attnscopeCells({layer}, {head}, {rows}, {columns})")


def test_cells_have_the_colour_of_their_weight(show):
    run = handmade.run()
    page, weights = show(run), run.layers[0].weights[0]
    for i, j in ((1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 3)):
        assert pixel(page, i, j) == shade(float(weights[i, j])), (i, j)
    zero, hidden, bad = pixel(page, 3, 1), pixel(page, 0, 2), pixel(page, 0, 0)
    assert zero == [68, 1, 84]
    assert bad == [0xC8, 0x1E, 0x5B]
    assert min(hidden) > 180  # hatched in light greys
    striped = {tuple(pixel(page, 0, 2, part)) for part in np.arange(0.2, 0.4, 0.014)}
    assert len(striped) > 1
    assert page.do("document.getElementById('sample-nan-field').hidden") is False


def test_hover_tells_the_cell(show):
    run = run_sentence("Life is short, eat dessert first", causal=True)
    page, result = show(run), run.layers[0]
    page.mouse("mouseMoved", *centre(page, 4, 2))
    page.wait("!document.getElementById('tip').hidden")
    words = page.do(
        "[...document.querySelectorAll('#tip dd')].map((one) => one.textContent.replace('−', '-'))"
    )
    steps = (result.scores, result.steps.scaled, result.weights)
    assert words == ["dessert (4)", "short (2)", *(f"{float(m[0, 4, 2]):.4f}" for m in steps)]
    page.mouse("mouseMoved", *centre(page, 1, 4))
    page.wait("document.getElementById('tip').textContent.includes('hidden by the mask')")


def test_the_picker_changes_the_head(show):
    run = run_sentence("Life is short, eat dessert first", heads=3, causal=True)
    page, weights = show(run), run.layers[0].weights
    assert pixel(page, 1, 0) == shade(float(weights[0, 1, 0]))
    page.do("{ const s = document.getElementById('head'); s.value = '2';"
            "s.dispatchEvent(new Event('change')); }")  # fmt: skip
    page.wait_for_map()
    assert pixel(page, 1, 0) == shade(float(weights[2, 1, 0]))
    page.do("document.getElementById('head-next').click()")
    page.wait_for_map()
    assert pixel(page, 1, 0) == shade(float(weights[0, 1, 0]))
    page.do("document.getElementById('head-back').click()")
    page.wait_for_map()
    assert pixel(page, 1, 0) == shade(float(weights[2, 1, 0]))


def test_a_click_on_a_token_lists_both_sides(show):
    run = run_sentence("Life is short, eat dessert first", causal=True)
    page, weights = show(run), run.layers[0].weights[0]
    page.do("document.querySelectorAll('.chip')[2].click()")
    page.wait("document.getElementById('row-title').textContent.startsWith('short (2)')")
    listed = "[...document.querySelectorAll('#{} .where')].map((one) => Number(one.textContent))"
    assert page.do(listed.format("row-list")) == weights[2, :3].argsort(descending=True).tolist()
    who = [i for i in weights[:, 2].argsort(descending=True).tolist() if i >= 2]
    assert page.do(listed.format("column-list")) == who
    strongest = page.do("document.querySelector('#row-list .weight').textContent")
    assert strongest == f"{float(weights[2].max()):.4f}"


def test_keys_move_and_search_finds(show):
    run = run_sentence("Life is short, eat dessert first", causal=True)
    page = show(run, Look(queries=(1,)))
    page.do("canvas.focus()")
    for name in ("End", "ArrowDown", "ArrowLeft"):
        page.key(name)
    page.wait("document.getElementById('cell-live').textContent.startsWith("
              "'query short (2), key dessert (4), ')")  # fmt: skip
    page.key("Enter", "\r")
    page.wait("document.getElementById('row-title').textContent.startsWith('dessert (4)')")
    page.do("{ const f = document.getElementById('find'); f.value = 'LIFE';"
            "f.dispatchEvent(new Event('input')); }")  # fmt: skip
    page.wait("document.getElementById('row-title').textContent.startsWith('Life (0)')")
    assert page.text("found") == "1 of 1"


def test_a_hostile_token_stays_a_word(show):
    page = show(made_run(tokens=len(HOSTILE), labels=HOSTILE))
    page.wait("document.querySelectorAll('#table tbody tr').length > 0")
    assert page.do("document.querySelectorAll('.chip')[0].textContent") == HOSTILE[0]
    assert page.do("document.querySelectorAll('script:not([type])').length") == 1
    assert page.do("document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert page.do("performance.getEntriesByType('resource').map((one) => one.name)"
                   ".filter((name) => !name.startsWith('blob:'))") == []  # fmt: skip
    assert page.text("table").startswith("Layer 0, head 0")


@pytest.mark.parametrize("tokens", [1, 512])
@pytest.mark.parametrize("threaded", [True, False], ids=["worker", "no worker"])
def test_the_page_computes_what_the_engine_computed(show, browser, tokens, threaded):  # noqa: F811
    run = made_run(heads=2, key_heads=1, tokens=tokens, width=64, sinks=torch.ones(2), softcap=9.0)
    script = None
    if not threaded:
        source = "window.Worker = function () { throw new Error('refused'); }"
        added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        script = added["identifier"]
    page = show(run)
    if script:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    assert page.do("attnscopeInWorker()") is threaded
    draw = np.random.default_rng(3)
    places = draw.integers(0, tokens, (1 if tokens == 1 else 4000, 2)).tolist()
    if tokens > 1:
        places += [[i, i] for i in range(tokens)]
    result = run.layers[0]
    rows, columns = np.array(places).T
    for head in (0, 1):
        computed = cells(page, 0, head, places)
        for name, matrix, most in (
            ("weight", result.weights, 1e-6),
            ("omega", result.scores, 2e-5),
            ("scaled", result.steps.scaled, 2e-5),
        ):
            mine = np.array([cell[name] for cell in computed])
            assert np.abs(mine - matrix[head].numpy()[rows, columns]).max() <= most, name
        seen = np.array([cell["seen"] for cell in computed])
        assert (seen == result.visible[head].numpy()[rows, columns]).all()


def test_every_extra_of_a_call_is_computed(show):
    bias, mask = torch.randn(3, 1, 7), from_tensor(torch.rand(2, 6, 7) > 0.4)
    bias = bias[:2]
    run = made_run(
        heads=2, tokens=6, keys=7, mask=mask, bias=bias, softcap=3.0, dtype=torch.float64
    )
    page, result = show(run), run.layers[0]
    places = [[i, j] for i in range(6) for j in range(7)]
    for head in (0, 1):
        mine = [cell["weight"] for cell in cells(page, 0, head, places)]
        assert np.abs(np.array(mine) - result.weights[head].numpy().ravel()).max() < 1e-12


def test_8_bit_weights_are_said_to_be_rounded(show):
    run = made_run(heads=12, tokens=128, width=64, layers=12)
    page = show(run)
    assert "rounded to 1/255" in page.text("map-note")
    assert "rounded to 1/255" in page.text("row-note")
    page.wait("document.querySelector('#cell dd') !== null")
    assert "≈" in page.text("cell")
    computed = cells(page, 11, 4, [[90, j] for j in range(128)])
    mine = np.array([cell["weight"] for cell in computed])
    weights = run.layers[11].weights[4, 90].double().numpy()
    assert np.abs(mine - weights).max() <= 0.5 / 255 + 1e-7
    assert np.abs(mine - np.rint(255 * weights) / 255).max() < 1e-9
    assert computed[0]["omega"] is None
    assert page.do("document.querySelector('#row-list .weight').textContent").startswith("≈ ")


def test_a_blind_row_is_told(show):
    mask = torch.ones(4, 4).tril(-1) > 0
    page = show(made_run(tokens=4, mask=from_tensor(mask)), Look(queries=(0,)))
    page.wait("document.getElementById('row-note').textContent.includes('may see no key')")
    assert cells(page, 0, 0, [[0, 0]])[0]["weight"] == 0


def test_a_long_text_is_drawn_smaller_and_can_be_zoomed(show):
    page = show(made_run(tokens=2500, width=8))
    assert "each pixel shows the largest weight" in page.text("map-note")
    page.do("for (let n = 0; n < 6; n += 1) document.getElementById('zoom-in').click()")
    page.wait_for_map()
    assert "to 2499 of 2500, keys 24" in page.text("map-note")
    assert "largest weight" not in page.text("map-note")


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_window(show, width):
    page = show(made_run(heads=3, tokens=40, labels=["人生", "x" * 300] * 20), width=width)
    assert page.do("document.documentElement.scrollWidth <= window.innerWidth")


def test_dark_and_light(show):
    page = show(made_run(), dark=True)
    assert page.do("getComputedStyle(document.body).backgroundColor") == "rgb(21, 22, 26)"
    page.do("document.getElementById('theme').click()")
    assert page.do("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 252)"
