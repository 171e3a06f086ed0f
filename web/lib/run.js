/** What a panel knows of one run, from the messages of the server or from a finished report. No DOM, no host. */

const WINDOW = 4; // messages that "now" looks back over
const POINTS = 64; // of the chart at most

/** A run that nothing is known of yet. */
export function idle() {
  return { state: 'idle', step: 0, steps: 0, calls: 0, rows: 0, images: 1, accepted: 0, proposed: 0, seconds: 0,
    points: [], recent: [], words: '', mode: '', reason: '', callMode: '', callReason: '', advice: '', stock: null, prompt: '' }
}

/** The run after a message "drafttree.stats" of the server; messages come in the order they were sent. */
export function after(run, message) {
  const same = run.prompt === message.prompt_id && run.state === 'running'
  const before = same ? run : { ...idle(), prompt: message.prompt_id ?? '' }
  if (message.state === 'done') return { ...fromReport(message.report), prompt: before.prompt }
  const next = { ...before, state: message.state }
  for (const name of ['step', 'steps', 'calls', 'rows', 'images', 'accepted', 'proposed', 'seconds', 'points', 'words']) {
    if (message[name] !== undefined) next[name] = message[name]
  }
  if (message.proposed !== undefined) {
    next.recent = [...before.recent, [next.accepted, next.proposed]].slice(-WINDOW - 1)
  }
  return next
}

/** The run that a report tells of, or null where it tells of none (the sampler has not run). */
export function fromReport(report) {
  if (!report || typeof report.steps !== 'number' || typeof report.calls !== 'number') return null
  return {
    ...idle(),
    state: 'done',
    step: report.steps,
    steps: report.steps,
    calls: report.calls,
    rows: report.rows ?? 0,
    images: report.images ?? 1,
    accepted: report.accepted ?? 0,
    proposed: report.proposed ?? 0,
    seconds: report.seconds ?? 0,
    points: chart(report.sigmas, report.acceptances),
    mode: report.mode ?? '',
    reason: report.reason ?? '',
    callMode: report.call_mode ?? '',
    callReason: report.call_reason ?? '',
    advice: report.advice ?? '',
    stock: report.stock_seconds ?? null
  }
}

/** At most POINTS pairs of a sigma and the mean acceptance from there on, null where nothing was verified. */
export function chart(sigmas, acceptances) {
  if (!Array.isArray(acceptances)) return []
  const width = Math.max(1, Math.ceil(acceptances.length / POINTS))
  const points = []
  for (let start = 0; start < acceptances.length; start += width) {
    const known = acceptances.slice(start, start + width).filter((a) => a !== null && a !== undefined)
    const mean = known.length ? known.reduce((sum, a) => sum + a, 0) / known.length : null
    points.push([sigmas?.[start] ?? null, mean])
  }
  return points
}

/** The share of all drafts that were accepted, null before any was judged. */
export function acceptance(run) {
  return run.proposed ? run.accepted / run.proposed : null
}

/** The share of the drafts accepted in the last few messages, null where none was judged in them. */
export function acceptanceNow(run) {
  if (!run.recent.length) return null
  const [first, last] = [run.recent.length > 1 ? run.recent[0] : [0, 0], run.recent[run.recent.length - 1]]
  const proposed = last[1] - first[1]
  return proposed > 0 ? (last[0] - first[0]) / proposed : null
}

/** Seconds until the end at the pace so far, null before the first step. */
export function secondsLeft(run) {
  if (run.state !== 'running' || !run.step || !run.seconds) return null
  return ((run.steps - run.step) * run.seconds) / run.step
}
