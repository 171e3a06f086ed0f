import { describe, expect, it } from 'vitest'
import { acceptance, acceptanceNow, after, chart, fromReport, idle, secondsLeft } from '../../web/lib/run.js'

const message = (more) => ({ node: '6', prompt_id: 'p', state: 'running', step: 0, steps: 28, calls: 0, ...more })
const counts = (step, calls, accepted, proposed, seconds) =>
  message({ step, calls, rows: 5 * calls, images: 1, accepted, proposed, seconds, points: [[1, 0.5]] })

describe('messages', () => {
  it('begin a run, move it and end it', () => {
    let run = after(idle(), message())
    expect(run).toMatchObject({ state: 'running', step: 0, steps: 28, prompt: 'p' })
    run = after(run, counts(7, 2, 6, 10, 1.5))
    expect(run).toMatchObject({ step: 7, calls: 2, rows: 10, points: [[1, 0.5]] })
    expect(acceptance(run)).toBeCloseTo(0.6)
    expect(secondsLeft(run)).toBeCloseTo((21 * 1.5) / 7)
    run = after(run, message({ state: 'done', report: { steps: 28, calls: 13, rows: 55, mode: 'tree', seconds: 3 } }))
    expect(run).toMatchObject({ state: 'done', step: 28, calls: 13, prompt: 'p' })
    expect(secondsLeft(run)).toBeNull()
  })

  it('of another prompt start over', () => {
    const run = after(idle(), counts(20, 9, 30, 40, 2))
    const next = after(run, message({ prompt_id: 'q' }))
    expect(next).toMatchObject({ step: 0, accepted: 0, proposed: 0, points: [], recent: [], prompt: 'q' })
  })

  it('of a second run in the same prompt start over, for a sampler may be used twice', () => {
    const done = after(idle(), message({ state: 'done', report: { steps: 28, calls: 13 } }))
    expect(after(done, message())).toMatchObject({ state: 'running', step: 0, reason: '' })
  })

  it('keep the last numbers when a run is cut off', () => {
    const run = after(after(idle(), counts(7, 2, 6, 10, 1.5)), message({ state: 'failed', step: 8, calls: 3, words: 'why' }))
    expect(run).toMatchObject({ state: 'failed', step: 8, calls: 3, accepted: 6, words: 'why' })
  })
})

describe('acceptance now', () => {
  it('counts the drafts of the last messages alone', () => {
    let run = after(idle(), message())
    expect(acceptanceNow(run)).toBeNull()
    run = after(run, counts(2, 1, 1, 4, 1))
    expect(acceptanceNow(run)).toBeCloseTo(0.25)
    for (const i of [1, 2, 3, 4, 5, 6]) run = after(run, counts(2 + i, 1 + i, 1 + 4 * i, 4 + 4 * i, 1 + i))
    expect(acceptanceNow(run)).toBe(1)
    expect(acceptance(run)).toBeCloseTo(25 / 28)
  })

  it('is unknown where nothing was drafted', () => {
    const run = after(after(idle(), counts(1, 1, 0, 0, 1)), counts(2, 2, 0, 0, 2))
    expect(acceptanceNow(run)).toBeNull()
    expect(acceptance(run)).toBeNull()
  })
})

describe('reports', () => {
  it('tell of nothing before the sampler has run', () => {
    for (const report of [undefined, null, {}, { reason: 'the sampler has not run yet' }]) {
      expect(fromReport(report)).toBeNull()
    }
  })

  it('of a plain run carry the reason, and never a time of the stock sampler that nobody measured', () => {
    const run = fromReport({ steps: 4, calls: 4, mode: 'plain', reason: 'eta is 0', acceptances: [null, null] })
    expect(run).toMatchObject({ mode: 'plain', reason: 'eta is 0', stock: null, proposed: 0 })
  })
})

describe('the chart', () => {
  it('has a column a step', () => {
    expect(chart([1, 0.5, 0], [null, 0.25])).toEqual([[1, null], [0.5, 0.25]])
  })

  it('gathers long schedules', () => {
    const n = 1000
    const sigmas = Array.from({ length: n + 1 }, (_, i) => n - i)
    const points = chart(sigmas, Array.from({ length: n }, (_, i) => (i % 2 ? 1 : null)))
    expect(points.length).toBeLessThanOrEqual(64)
    expect(points[0]).toEqual([n, 1])
    expect(points.every(([sigma], i) => i === 0 || sigma < points[i - 1][0])).toBe(true)
  })

  it('needs no sigmas', () => {
    expect(chart(undefined, [0.5])).toEqual([[null, 0.5]])
    expect(chart(undefined, undefined)).toEqual([])
  })
})
