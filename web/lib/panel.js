/** The panel's DOM: made once per node, redrawn from a run. Colours are the host's own, so it follows its themes. */
import { idle } from './run.js'
import { describe, fill, percent, phrases } from './words.js'

export const HEIGHT = 118 // pixels the panel needs

const SVG = 'http://www.w3.org/2000/svg'
const WIDTH = 100 // of the chart's own coordinates; it stretches to the panel
const TALL = 40

const STYLE = `
.drafttree-panel { box-sizing: border-box; width: 100%; height: 100%; min-height: ${HEIGHT - 8}px; padding: 6px 8px;
  display: flex; flex-direction: column; gap: 3px; overflow: hidden; border-radius: 6px; text-align: left;
  background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd); font: 12px/1.35 system-ui, sans-serif;
  border: 1px solid var(--border-color, #4e4e4e); --draft: #3d9a50; --stop: #c2571a; cursor: default; }
.drafttree-panel .title { font-weight: 600; font-variant-numeric: tabular-nums; }
.drafttree-panel .title:empty { display: none; }
.drafttree-panel .track { flex: none; height: 4px; border-radius: 2px; overflow: hidden;
  background: color-mix(in srgb, currentColor 18%, transparent); }
.drafttree-panel .track > div { height: 100%; width: 0; background: var(--draft); }
.drafttree-panel .line { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; opacity: 0.85; }
.drafttree-panel .lines { overflow-y: auto; flex: 0 1 auto; min-height: 0; }
.drafttree-panel .chart { flex: 1 0 30px; min-height: 0; max-height: 160px; display: flex; flex-direction: column; }
.drafttree-panel svg { flex: 1 1 0; min-height: 0; width: 100%; display: block;
  border-bottom: 1px solid color-mix(in srgb, currentColor 40%, transparent); }
.drafttree-panel svg .space { fill: color-mix(in srgb, currentColor 9%, transparent); }
.drafttree-panel svg .share { fill: var(--draft); }
.drafttree-panel .axis { flex: none; display: flex; justify-content: space-between; gap: 6px; font-size: 10px;
  line-height: 13px; opacity: 0.75; white-space: nowrap; font-variant-numeric: tabular-nums; }
.drafttree-panel .axis span:nth-child(2) { overflow: hidden; text-overflow: ellipsis; }
.drafttree-panel [hidden] { display: none; }
.drafttree-panel[data-state="cancelled"] .track > div, .drafttree-panel[data-state="failed"] .track > div { background: var(--stop); }
`

/** Put the panel's style into the page, once. */
export function addStyle(doc) {
  if (doc.getElementById('drafttree-style')) return
  const style = doc.createElement('style')
  style.id = 'drafttree-style'
  style.textContent = STYLE
  doc.head.append(style)
}

/** { element, show(run) }: show draws a run, or idle. */
export function makePanel(doc, locale) {
  const said = phrases(locale)
  const make = (kind, name, parent) => {
    const element = doc.createElement(kind)
    if (name) element.className = name
    parent?.append(element)
    return element
  }
  const element = make('div', 'drafttree-panel')
  const title = make('div', 'title', element)
  const track = make('div', 'track', element)
  const bar = make('div', '', track)
  const lines = make('div', 'lines', element)
  const figure = make('div', 'chart', element)
  const drawing = doc.createElementNS(SVG, 'svg')
  drawing.setAttribute('viewBox', `0 0 ${WIDTH} ${TALL}`)
  drawing.setAttribute('preserveAspectRatio', 'none')
  figure.append(drawing)
  const axis = make('div', 'axis', figure)
  const [high, caption, low] = [make('span', '', axis), make('span', '', axis), make('span', '', axis)]
  caption.textContent = said.chart

  const show = (run) => {
    const text = describe(run, said)
    element.dataset.state = run.state
    title.textContent = text.title
    track.hidden = run.state === 'idle'
    bar.style.width = `${run.steps ? (100 * run.step) / run.steps : 0}%`
    lines.replaceChildren(
      ...text.lines.map((words) => {
        const line = make('div', 'line')
        line.textContent = words
        return line
      })
    )
    const points = run.points ?? []
    figure.hidden = !points.some(([, share]) => share !== null)
    if (figure.hidden) return
    drawing.replaceChildren(...columns(points).map((column) => draw(doc, column, said)))
    high.textContent = sigma(points[0][0])
    low.textContent = sigma(points[points.length - 1][0])
  }
  show(idle())
  return { element, show }
}

/** Where each point's column stands: { x, width, share, sigma }, x and width in the chart's coordinates. */
export function columns(points) {
  const step = WIDTH / points.length
  return points.map(([at, share], i) => ({ x: i * step, width: step * 0.82, share, sigma: at }))
}

function draw(doc, { x, width, share, sigma: at }, said) {
  const group = doc.createElementNS(SVG, 'g')
  const rectangle = (name, y, height) => {
    const shape = doc.createElementNS(SVG, 'rect')
    for (const [key, value] of Object.entries({ x, y, width, height })) shape.setAttribute(key, value.toFixed(2))
    shape.setAttribute('class', name)
    group.append(shape)
  }
  rectangle('space', 0, TALL)
  if (share === null) return group
  rectangle('share', TALL * (1 - share), TALL * share)
  const hint = doc.createElementNS(SVG, 'title')
  hint.textContent = fill(said.column, { sigma: sigma(at), share: percent(share) })
  group.append(hint)
  return group
}

function sigma(value) {
  if (value === null || value === undefined) return ''
  return value >= 10 ? value.toFixed(1) : value.toFixed(2)
}
