/** Nodes by the ids that the server uses: "7", or "1:2:7" for node 7 in subgraph 2 in subgraph 1. */

/** The node an id leads to from the root graph, null where it leads nowhere. */
export function nodeAt(root, id) {
  const steps = String(id).split(':')
  let graph = root
  for (const step of steps.slice(0, -1)) {
    graph = get(graph, step)?.subgraph
    if (!graph) return null
  }
  return get(graph, steps[steps.length - 1])
}

function get(graph, id) {
  // A graph's own ids are numbers, or strings that do not read as one.
  return graph?.getNodeById?.(/^-?\d+$/.test(id) ? Number(id) : id) ?? graph?.getNodeById?.(id) ?? null
}

/** Every [id, node] of the kinds, subgraphs included; a subgraph in two places counts twice. */
export function find(root, kinds, before = '', depth = 0) {
  const found = []
  for (const node of root?.nodes ?? root?._nodes ?? []) {
    const id = before + node.id
    if (kinds.has(kind(node))) found.push([id, node])
    if (node.subgraph && depth < 32) found.push(...find(node.subgraph, kinds, `${id}:`, depth + 1))
  }
  return found
}

export function kind(node) {
  return node.comfyClass ?? node.type
}

/**
 * The newest report of each node id, from the answer of /history: { id: report }.
 *
 * workflow: the id of the open workflow, or "": an entry of another workflow is passed over, for it may use the same
 * numbers. kinds: the types of node whose reports count.
 */
export function lastReports(history, workflow, kinds) {
  const entries = Object.values(history ?? {}).sort((a, b) => number(a) - number(b))
  const reports = {}
  for (const entry of entries) {
    const [, , prompt, extra] = entry?.prompt ?? []
    const theirs = extra?.extra_pnginfo?.workflow?.id
    if (!prompt || (workflow && theirs !== workflow)) continue
    for (const [id, output] of Object.entries(entry.outputs ?? {})) {
      const report = output?.drafttree_report?.[0]
      if (report && kinds.has(prompt[id]?.class_type)) reports[id] = report
    }
  }
  return reports
}

function number(entry) {
  return Number(entry?.prompt?.[0] ?? 0)
}
