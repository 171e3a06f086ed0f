import { describe as group, expect, it } from 'vitest'
import { fromReport, idle } from '../../web/lib/run.js'
import { describe, duration, languages, phrases } from '../../web/lib/words.js'

const report = { steps: 28, calls: 13, rows: 55, accepted: 27, proposed: 41, mode: 'tree', seconds: 12.34 }
const said = phrases('en')

group('what the panel says', () => {
  it('at the end', () => {
    const text = describe(fromReport({ ...report, stock_seconds: 21.4 }))
    expect(text.title).toBe('28 steps in 13 calls, 2.2×, 12 s')
    expect(text.lines).toEqual(['4.2 rows a call · 66 % accepted', 'stock would take about 21 s'])
  })

  it('nothing of the stock sampler where its time is not known', () => {
    expect(describe(fromReport(report)).lines.join()).not.toMatch(/stock/)
  })

  it('why a run was plain', () => {
    const text = describe(fromReport({ ...report, calls: 28, mode: 'plain', reason: 'a ControlNet', stock_seconds: 9 }))
    expect(text.title).toBe('28 steps in 28 calls, 12 s')
    expect(text.lines).toEqual(['Plain sampler: a ControlNet'])
  })

  it('why there was nothing to do', () => {
    const text = describe(fromReport({ steps: 0, calls: 0, mode: 'plain', reason: 'denoise is 0' }))
    expect(text.title).toBe('Nothing to sample: denoise is 0')
  })

  it('how calls were split, only where they were', () => {
    const split = { ...report, call_mode: 'by sigma', call_reason: 'ControlNet' }
    expect(describe(fromReport(split)).lines).toContain('calls by sigma: ControlNet')
    expect(describe(fromReport({ ...report, call_mode: 'vector', call_reason: 'clean' })).lines).toHaveLength(1)
  })

  it('while it runs', () => {
    const run = { ...idle(), state: 'running', step: 14, steps: 28, calls: 5, rows: 25, seconds: 100,
      accepted: 8, proposed: 10, recent: [[0, 2], [8, 10]] }
    const text = describe(run, said, new Date(2026, 0, 1, 23, 59, 0))
    expect(text.title).toBe('14 of 28 steps, 5 calls')
    expect(text.lines).toEqual(['5.0 rows a call · accepted now 100 %, so far 80 %', 'about 1 min 40 s left, until 00:00'])
    expect(describe({ ...run, seconds: 2 }, said).lines[1]).toBe('about 2.0 s left')
    expect(describe({ ...idle(), state: 'running', steps: 28 }).title).toBe('Getting ready: 28 steps')
  })

  it('when it was cut off', () => {
    const run = { ...idle(), state: 'failed', step: 3, steps: 28, calls: 2, words: 'OutOfMemoryError: no room' }
    expect(describe(run).title).toBe('Stopped after 3 of 28 steps')
    expect(describe({ ...run, step: 0, steps: 0 }).title).toBe('Stopped before the first step')
    expect(describe(run).lines[0]).toBe('OutOfMemoryError: no room')
    expect(describe({ ...run, state: 'cancelled' }).title).toBe('Cancelled after 3 of 28 steps')
  })
})

group('durations', () => {
  it.each([[0.174, '0.17 s'], [9.96, '10.0 s'], [59.4, '59 s'], [59.7, '1 min 0 s'], [3725, '1 h 2 min']])('%d', (n, text) => {
    expect(duration(n)).toBe(text)
  })
})

group('languages', () => {
  it('all have every phrase, with the same blanks', () => {
    const { en, ...others } = languages()
    for (const [name, keys] of Object.entries(others)) {
      expect(keys).toEqual(en)
      for (const key of keys) {
        const blanks = (text) => (text.match(/\{\w+\}/g) ?? []).sort()
        expect(blanks(phrases(name)[key]), `${name}: ${key}`).toEqual(blanks(said[key]))
      }
    }
  })

  it('fall back to English', () => {
    for (const locale of ['fr', '', undefined, null, 7]) expect(phrases(locale)).toBe(said)
    expect(phrases('zh-TW')).toBe(phrases('zh'))
  })
})
