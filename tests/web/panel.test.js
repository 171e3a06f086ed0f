// @vitest-environment happy-dom
import { beforeEach, describe, expect, it } from 'vitest'
import { addStyle, columns, makePanel } from '../../web/lib/panel.js'
import { after, fromReport, idle } from '../../web/lib/run.js'

const visible = (element) => !element.hidden
let panel, $

beforeEach(() => {
  panel = makePanel(document, 'en')
  $ = (name) => panel.element.querySelector(name)
})

describe('the panel', () => {
  it('says what it is for before any run', () => {
    expect(panel.element.dataset.state).toBe('idle')
    expect(panel.element.textContent).toMatch(/during a run/)
    expect(visible($('.chart'))).toBe(false)
    expect(visible($('.track'))).toBe(false)
  })

  it('moves with the messages', () => {
    const message = { prompt_id: 'p', state: 'running', step: 14, steps: 28, calls: 5, rows: 25, accepted: 8, proposed: 10,
      seconds: 2, points: [[1, null], [0.9, 0.5], [0.5, 1]] }
    panel.show(after(idle(), message))
    expect($('.title').textContent).toBe('14 of 28 steps, 5 calls')
    expect($('.track > div').style.width).toBe('50%')
    expect(visible($('.chart'))).toBe(true)
    const shares = [...panel.element.querySelectorAll('.share')].map((shape) => Number(shape.getAttribute('height')))
    expect(shares).toEqual([20, 40])
    expect($('.axis').textContent).toBe('1.00accepted drafts over sigma0.50')
    expect(panel.element.querySelector('g title').textContent).toBe('sigma 0.90: 50 % accepted')
  })

  it('writes words of the server as text, never as markup', () => {
    panel.show(fromReport({ steps: 4, calls: 4, mode: 'plain', reason: '<img src=x onerror=alert(1)>' }))
    expect(panel.element.querySelector('img')).toBeNull()
    expect(panel.element.textContent).toContain('<img')
    expect(visible($('.chart'))).toBe(false)
  })

  it('draws again from nothing', () => {
    panel.show(fromReport({ steps: 4, calls: 2, acceptances: [1, 1], sigmas: [1, 0.5, 0], mode: 'tree' }))
    panel.show(idle())
    expect(panel.element.dataset.state).toBe('idle')
    expect(visible($('.chart'))).toBe(false)
  })
})

it('columns fill the width in order', () => {
  const placed = columns([[1, 0.5], [0.5, null], [0.2, 1], [0.1, 0]])
  expect(placed.map(({ x }) => x)).toEqual([0, 25, 50, 75])
  expect(placed.every(({ x, width }) => x + width <= 100)).toBe(true)
})

it('the style is put into the page once', () => {
  addStyle(document)
  addStyle(document)
  expect(document.querySelectorAll('#drafttree-style')).toHaveLength(1)
})
