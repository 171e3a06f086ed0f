/** The live panel on the speculative samplers. The graph works without it; nothing here is needed to run a prompt. */
import { app } from '/scripts/app.js'
import { api } from '/scripts/api.js'
import { find, kind, lastReports, nodeAt } from './lib/graph.js'
import { addStyle, HEIGHT, makePanel } from './lib/panel.js'
import { after, fromReport, idle } from './lib/run.js'

const KINDS = new Set(['DraftTreeKSampler', 'DraftTreeKSamplerAdvanced', 'DraftTreeSampler'])
const WIDGET = 'drafttree_panel'
const SETTING = 'DraftTree.Panel'
const KEPT = 100 // runs remembered, for when a workflow is opened again
const HISTORY = 64 // prompts looked through after a reload

const panels = new WeakMap() // node -> panel
const runs = new Map() // workflow id and node id -> run
let ready = false // the page has a graph: settings are told before
let on = null // the setting, once it was told

const enabled = () => on ?? app.ui?.settings?.getSettingValue?.(SETTING) ?? true
const root = () => app.rootGraph ?? app.graph
const workflow = () => String(root()?.id ?? '')
const locale = () => app.ui?.settings?.getSettingValue?.('Comfy.Locale') ?? navigator.language
const key = (id, of = workflow()) => `${of}|${id}`

function addPanel(node) {
  if (panels.has(node) || !node.addDOMWidget) return
  addStyle(document)
  const panel = makePanel(document, locale())
  const options = { serialize: false, hideOnZoom: false, margin: 6, getMinHeight: () => HEIGHT, getValue: () => '', setValue() {} }
  const widget = node.addDOMWidget(WIDGET, 'drafttree', panel.element, options)
  widget.serialize = false // values of widgets are saved by position: ours takes none
  panels.set(node, { ...panel, widget })
}

function removePanel(node) {
  const panel = panels.get(node)
  if (!panel) return
  panels.delete(node)
  if (node.removeWidget) node.removeWidget(panel.widget)
  else node.widgets.splice(node.widgets.indexOf(panel.widget), 1)
  panel.widget.onRemove?.()
  panel.element.remove()
}

function show(id, run, of = workflow()) {
  runs.delete(key(id, of))
  runs.set(key(id, of), run)
  if (runs.size > KEPT) runs.delete(runs.keys().next().value)
  if (of !== workflow()) return
  const node = nodeAt(root(), id)
  if (node) panels.get(node)?.show(run)
}

function onStats({ detail }) {
  if (!enabled() || !detail?.node) return
  const of = detail.workflow || workflow()
  const run = after(runs.get(key(detail.node, of)) ?? idle(), detail)
  if (run) show(detail.node, run, of)
}

/** A node that had nothing to run still has a report: of the prompt that remembered it, or of no steps at all. */
function onExecuted({ detail }) {
  const run = enabled() && fromReport(detail?.output?.drafttree_report?.[0])
  if (!run || !KINDS.has(kind(nodeAt(root(), detail.node) ?? {}))) return
  show(detail.node, { ...run, prompt: detail.prompt_id ?? '' })
}

/** After loading a graph: what this page saw of its nodes, else what the server remembers of them. */
async function restore() {
  const nodes = enabled() ? find(root(), KINDS) : []
  if (!nodes.length) return
  let unknown = false
  for (const [id, node] of nodes) {
    addPanel(node)
    const run = runs.get(key(id))
    if (run) panels.get(node)?.show(run)
    else unknown = true
  }
  if (!unknown) return
  const of = workflow()
  try {
    const answer = await api.fetchApi(`/history?max_items=${HISTORY}`)
    const reports = lastReports(await answer.json(), of, KINDS)
    for (const [id] of nodes) {
      const run = fromReport(reports[id])
      if (run && !runs.has(key(id, of))) show(id, run, of)
    }
  } catch (error) {
    console.warn('[DraftTree] the last reports could not be read:', error)
  }
}

/** A prompt that ends in an error inside the node, perhaps before its first step. */
function onError({ detail }) {
  const id = detail?.node_id
  if (!enabled() || id === undefined || id === null || !KINDS.has(detail.node_type)) return
  const before = runs.get(key(id))
  const run = before?.prompt === detail.prompt_id ? before : { ...idle(), prompt: detail.prompt_id ?? '' }
  if (run.state !== 'failed') show(id, { ...run, state: 'failed', words: String(detail.exception_message ?? '').trim() })
}

function onSetting(value) {
  on = value // the host stores it after this
  if (!ready) return
  for (const [, node] of find(root(), KINDS)) {
    if (!on) removePanel(node)
  }
  if (on) restore()
  app.graph?.setDirtyCanvas?.(true, true)
}

app.registerExtension({
  name: 'DraftTree.Panel',
  settings: [
    {
      id: SETTING,
      category: ['DraftTree', 'Sampler', 'Panel'],
      name: 'Live panel on speculative samplers',
      tooltip: 'Steps, model calls, accepted drafts and the expected end, on the node while it runs.',
      type: 'boolean',
      defaultValue: true,
      onChange: onSetting
    }
  ],
  setup() {
    ready = true
    api.addEventListener('drafttree.stats', onStats)
    api.addEventListener('executed', onExecuted)
    api.addEventListener('execution_error', onError)
  },
  nodeCreated(node) {
    if (KINDS.has(kind(node)) && enabled()) addPanel(node)
  },
  afterConfigureGraph: restore
})
