"""What somebody does who has never seen the pack: from the first page to a picture, and what can go wrong."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from examples import example


def sampler(page: Any, kind: str = "DraftTreeKSampler") -> dict[str, Any]:
    return next(iter(page.nodes(kind)))


def set_widgets(page: Any, kind: str, **values: Any) -> None:
    """By hand, as it were: into the widgets of the first node of a kind."""
    page.js(
        """([kind, values]) => {
          const node = window.app.graph.nodes.find((n) => n.type === kind)
          for (const [name, value] of Object.entries(values)) node.widgets.find((w) => w.name === name).value = value
        }""",
        [kind, values],
    )


def test_from_the_first_page_to_a_picture(first_page: Any, visit: Any, keep: Any) -> None:
    """A new user's page opens the template browser: our part of it, a card, Run, a picture. Three clicks, no typing."""
    page = first_page
    started = time.monotonic()
    page.templates()
    keep(page, "step1_templates")
    page.open_template("drafttree_demo")
    keep(page, "step2_workflow")
    assert [panel["state"] for panel in page.panels()] == ["idle"]
    page.watch_panels()
    entry = page.run()
    keep(page, "step3_picture")
    assert time.monotonic() - started < 60
    assert entry["status"]["status_str"] == "success"
    assert any(output.get("images") for output in entry["outputs"].values())
    # The panel moved with the run, and ends with what the report says.
    node = str(sampler(page)["id"])
    report = entry["outputs"][node]["drafttree_report"][0]
    states = [title.partition(":")[0] for title in page.titles()]
    assert "running" in states and states[-1] == "done"
    (panel,) = page.panels()
    assert panel["state"] == "done"
    assert panel["text"].startswith(f"{report['steps']} steps in {report['calls']} calls, ")
    assert "accepted drafts over sigma" in panel["text"]


def test_the_panel_counts_up_and_comes_back_after_a_reload(visit: Any, keep: Any) -> None:
    page = visit()
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", steps=120, seed=21)
    page.watch_panels()
    page.run()
    counts = [int(n) for title in page.titles() for n in re.findall(r"^running: (\d+) of 120 steps", title)]
    assert len(set(counts)) >= 3 and counts == sorted(counts)
    (before,) = page.panels()
    assert before["text"].startswith("120 steps in ")
    saved = page.graph()
    page.goto()
    page.load(saved)
    page.wait("() => document.querySelector('.drafttree-panel[data-state=done]')")
    assert page.panels() == [before]
    keep(page, "after_reload")


def test_cancel(visit: Any, keep: Any) -> None:
    page = visit()
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", steps=800, seed=22)
    known = page.known()
    page.press_run()
    page.wait("() => /^[1-9]\\d* of 800/.test(document.querySelector('.drafttree-panel .title').textContent)")
    keep(page, "running")
    page.js("() => window.app.extensionManager.command.execute('Comfy.Interrupt')")  # the cross beside Run
    page.ended(known)
    page.wait("() => document.querySelector('.drafttree-panel[data-state=cancelled]')")
    (panel,) = page.panels()
    steps = re.match(r"Cancelled after (\d+) of 800 steps", panel["text"])
    assert steps is not None and 0 < int(steps[1]) < 800
    # The next run starts afresh.
    set_widgets(page, "DraftTreeKSampler", steps=6)
    page.run()
    assert page.panels()[0]["text"].startswith("6 steps in ")


def test_an_error_is_shown(visit: Any, keep: Any) -> None:
    """ddpm is not made for this model: the host shows the node's own words, the panel does not pretend a run."""
    page = visit()
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", sampler_name="ddpm", seed=23)
    known = page.known()
    page.press_run()
    entry = page.ended(known)
    assert entry["status"]["status_str"] == "error"
    words = "sampler_name is ddpm, which is not made for flow models"
    said = page.page.get_by_text(words).first
    try:
        said.wait_for(state="visible", timeout=10_000)
    finally:
        keep(page, "error")
    assert page.panels()[0]["state"] == "failed" and words in page.panels()[0]["text"]
    page.page.keyboard.press("Escape")
    page.errors.clear()  # the host's own word on a prompt that failed


def test_a_plain_run_says_why(visit: Any, keep: Any) -> None:
    page = visit()
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", eta=0, seed=24)
    page.run()
    keep(page, "plain")
    (panel,) = page.panels()
    assert panel["text"].startswith("28 steps in 28 calls, ")
    assert "Plain sampler: eta is 0" in panel["text"]


@pytest.mark.parametrize("palette", ["dark", "light"])
@pytest.mark.parametrize("vue", [False, True], ids=["canvas", "nodes2"])
def test_both_renderers_in_both_themes(visit: Any, keep: Any, vue: bool, palette: str) -> None:
    page = visit(Comfy_VueNodes_Enabled=vue, Comfy_ColorPalette=palette)
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", seed=30 + 2 * vue + (palette == "light"))
    page.run()
    page.js("() => window.app.extensionManager.command.execute('Comfy.Canvas.FitView')")
    page.page.wait_for_timeout(700)
    keep(page, f"{'nodes2' if vue else 'canvas'}_{palette}")
    assert bool(page.js("() => !!document.querySelector('[data-node-id]')")) == vue
    (panel,) = page.panels()
    assert panel["state"] == "done"
    # All of it can be seen and read: inside its node, nothing cut, text against its ground as people need it.
    seen = page.js(
        """() => {
          const panel = document.querySelector('.drafttree-panel'), box = panel.getBoundingClientRect()
          const inside = [...panel.querySelectorAll('.title, .line, svg, .axis')].every((e) => {
            const r = e.getBoundingClientRect()
            return r.height > 0 && r.top >= box.top - 1 && r.bottom <= box.bottom + 1 && r.right <= box.right + 1
          })
          const style = getComputedStyle(panel)
          return { inside, width: panel.offsetWidth, height: panel.offsetHeight, text: style.color,
                   ground: style.backgroundColor }
        }"""
    )
    assert seen["inside"] and seen["width"] > 150 and seen["height"] > 80, seen
    assert contrast(seen["text"], seen["ground"]) > 4.5, seen


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two CSS colours."""

    def luminance(colour: str) -> float:
        parts = [float(part) for part in re.findall(r"[\d.]+", colour)[:3]]
        if colour.startswith("color("):
            parts = [255 * part for part in parts]
        linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_setting_turns_it_off(visit: Any, keep: Any) -> None:
    """Off: no panel, the same graph, the same prompt; and on again without a reload."""
    page = visit(DraftTree_Panel=False)
    page.load(example("drafttree_demo"))
    assert page.js("() => document.querySelectorAll('.drafttree-panel').length") == 0
    off = page.graph()
    set_widgets(page, "DraftTreeKSampler", seed=26)
    entry = page.run()
    assert entry["status"]["status_str"] == "success"
    assert page.js("() => document.querySelectorAll('.drafttree-panel').length") == 0
    page.js("() => window.app.extensionManager.setting.set('DraftTree.Panel', true)")
    page.wait("() => document.querySelector('.drafttree-panel[data-state=done]')")
    page.js("() => window.app.extensionManager.setting.set('DraftTree.Panel', false)")
    page.settle()
    assert page.js("() => document.querySelectorAll('.drafttree-panel').length") == 0
    names = page.js("() => window.app.graph.nodes.flatMap((n) => n.widgets ?? []).map((w) => w.name)")
    assert "drafttree_panel" not in names
    assert (
        sampler(page)["widgets_values"][1:]
        == next(n for n in off["nodes"] if n["type"] == "DraftTreeKSampler")["widgets_values"][1:]
    )


def test_a_sampler_in_a_subgraph(visit: Any, keep: Any) -> None:
    """Its id is "outer:inner"; the panel is on the inner node, seen when the subgraph is open."""
    page = visit()
    page.load(example("drafttree_demo"))
    set_widgets(page, "DraftTreeKSampler", seed=27)
    page.js(
        """() => {
          const graph = window.app.graph
          const inner = graph.nodes.filter((n) => ['DraftTreeKSampler', 'DraftTreeConfigure'].includes(n.type))
          graph.convertToSubgraph(new Set(inner))
        }"""
    )
    page.settle()
    entry = page.run()
    inner = [node for node, output in entry["outputs"].items() if "drafttree_report" in output]
    assert len(inner) == 1 and ":" in inner[0]
    page.js(
        """() => {
          const node = window.app.graph.nodes.find((n) => n.isSubgraphNode?.())
          window.app.canvas.openSubgraph(node.subgraph, node)
        }"""
    )
    page.settle()
    page.page.wait_for_timeout(300)
    keep(page, "subgraph")
    (panel,) = page.panels()
    assert panel["state"] == "done" and panel["text"].startswith("28 steps in ")


def test_a_sampler_object(visit: Any, keep: Any) -> None:
    """Speculative Sampler shows the run of the SamplerCustomAdvanced that uses it, after a reload too."""
    page = visit()
    page.load(example("drafttree_demo"))
    page.js(
        """() => {
          const graph = window.app.graph, at = (type) => graph.nodes.find((n) => n.type === type)
          const old = at('DraftTreeKSampler'), add = (type, x, y) => {
            const node = window.LiteGraph.createNode(type)
            node.pos = [x, y]
            graph.add(node)
            return node
          }
          const source = (name) => {
            const link = graph.getLink(old.inputs.find((i) => i.name === name).link)
            return [graph.getNodeById(link.origin_id), link.origin_slot]
          }
          const [model, m] = source('model'), [positive, p] = source('positive')
          const [negative, n] = source('negative'), [latent, l] = source('latent_image')
          const guider = add('CFGGuider', 700, 600), sigmas = add('BasicScheduler', 700, 800)
          const noise = add('RandomNoise', 340, 600), ours = add('DraftTreeSampler', 340, 750)
          const run = add('SamplerCustomAdvanced', 1050, 600), decode = at('VAEDecode')
          model.connect(m, guider, 'model')
          positive.connect(p, guider, 'positive')
          negative.connect(n, guider, 'negative')
          model.connect(m, sigmas, 'model')
          for (const [node, name] of [[noise, 'noise'], [guider, 'guider'], [ours, 'sampler'], [sigmas, 'sigmas']]) {
            node.connect(0, run, name)
          }
          latent.connect(l, run, 'latent_image'); run.connect(0, decode, 'samples')
          sigmas.widgets.find((w) => w.name === 'scheduler').value = 'simple'
          for (const node of [old, ...graph.nodes.filter((x) => x.type === 'PreviewAny')]) graph.remove(node)
        }"""
    )
    page.settle()
    page.watch_panels()
    entry = page.run()
    assert entry["status"]["status_str"] == "success", entry["status"]
    assert any(title.startswith("running") for title in page.titles())
    (panel,) = page.panels()
    assert panel["state"] == "done" and panel["text"].startswith("20 steps in ")
    saved = page.graph()
    page.goto()
    page.load(saved)
    page.wait("() => document.querySelector('.drafttree-panel[data-state=done]')")
    assert page.panels() == [panel]
    keep(page, "sampler_object")


def test_it_costs_nothing_where_it_is_not_used(visit: Any) -> None:
    """Without a node of ours no report is asked for; with one, once. The host may ask for its own."""
    page = visit()
    page.js(
        """async () => {
          const { api } = await import('/scripts/api.js')
          const ask = api.fetchApi.bind(api)
          window.asked = []
          api.fetchApi = (route, ...more) => { window.asked.push(route); return ask(route, ...more) }
        }"""
    )
    ours = "() => window.asked.filter((route) => route === '/history?max_items=64').length"
    workflow = example("drafttree_demo")
    page.load(workflow | {"nodes": [n for n in workflow["nodes"] if n["type"] == "MarkdownNote"], "links": []})
    page.page.wait_for_timeout(200)
    assert page.js(ours) == 0
    page.load(workflow)
    page.page.wait_for_timeout(200)
    assert page.js(ours) == 1
    page.goto()  # without the listener
