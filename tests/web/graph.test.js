import { describe, expect, it } from 'vitest'
import { find, lastReports, nodeAt } from '../../web/lib/graph.js'

const graph = (...nodes) => ({ nodes, getNodeById: (id) => nodes.find((node) => node.id === id) ?? null })
const sampler = (id) => ({ id, comfyClass: 'DraftTreeKSampler' })
const KINDS = new Set(['DraftTreeKSampler'])

describe('nodes by id', () => {
  const shared = graph(sampler(7), { id: 8, type: 'KSampler' })
  const middle = graph({ id: 2, type: 'uuid-inner', subgraph: shared })
  const root = graph(sampler(6), { id: 1, type: 'uuid', subgraph: middle }, { id: 3, type: 'uuid', subgraph: middle })

  it('are found through subgraphs', () => {
    expect(nodeAt(root, '6').id).toBe(6)
    expect(nodeAt(root, 6).id).toBe(6)
    expect(nodeAt(root, '1:2:7').id).toBe(7)
    expect(nodeAt(root, '3:2:7')).toBe(nodeAt(root, '1:2:7'))
    for (const id of ['9', '6:2', '1:9:7', '', 'x']) expect(nodeAt(root, id)).toBeNull()
    expect(nodeAt(null, '1')).toBeNull()
  })

  it('may be words', () => {
    expect(nodeAt(graph(sampler('a')), 'a').id).toBe('a')
    expect(nodeAt(graph(sampler('12')), '12').id).toBe('12')
  })

  it('are listed with each place they stand in', () => {
    expect(find(root, KINDS).map(([id]) => id)).toEqual(['6', '1:2:7', '3:2:7'])
    expect(find(graph({ id: 1, type: 'KSampler' }), KINDS)).toEqual([])
    expect(find(undefined, KINDS)).toEqual([])
  })
})

describe('the last report of a node', () => {
  const entry = (number, workflow, report, type = 'DraftTreeKSampler') => ({
    prompt: [number, `id${number}`, { 6: { class_type: type } }, { extra_pnginfo: { workflow: { id: workflow } } }, []],
    outputs: { 6: { drafttree_report: [report] } }
  })

  it('is the newest, whatever the order of the answer', () => {
    expect(lastReports({ a: entry(3, 'w', 'new'), b: entry(2, 'w', 'old') }, 'w', KINDS)).toEqual({ 6: 'new' })
  })

  it('belongs to this workflow and to a node of ours', () => {
    expect(lastReports({ a: entry(3, 'other', 'no'), b: entry(2, 'w', 'yes') }, 'w', KINDS)).toEqual({ 6: 'yes' })
    expect(lastReports({ a: entry(3, 'w', 'no', 'KSampler') }, 'w', KINDS)).toEqual({})
  })

  it('is none of a prompt whose workflow is not known', () => {
    const api = { ...entry(4, 'w', 'no'), prompt: [4, 'x', { 6: { class_type: 'DraftTreeKSampler' } }, {}] }
    expect(lastReports({ a: api, b: entry(2, 'w', 'yes') }, 'w', KINDS)).toEqual({ 6: 'yes' })
  })

  it('survives prompts that failed, and answers of other shapes', () => {
    const odd = { a: { prompt: [1, 'x', {}, {}], outputs: {} }, b: {}, c: { prompt: [2], outputs: { 6: null } }, d: null }
    expect(lastReports(odd, 'w', KINDS)).toEqual({})
    expect(lastReports(null, 'w', KINDS)).toEqual({})
  })
})
