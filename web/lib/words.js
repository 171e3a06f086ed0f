/** The panel's lines of text, in the interface's language where it is one of these. */
import { acceptance, acceptanceNow, secondsLeft } from './run.js'

const PHRASES = {
  en: {
    idle: 'Steps, model calls and accepted drafts show here during a run.',
    starting: 'Getting ready: {steps} steps',
    running: '{step} of {steps} steps, {calls} calls',
    done: '{steps} steps in {calls} calls, {ratio}×, {seconds}',
    plain: '{steps} steps in {calls} calls, {seconds}',
    none: 'Nothing to sample: {reason}',
    reason: 'Plain sampler: {reason}',
    cancelled: 'Cancelled after {step} of {steps} steps',
    failed: 'Stopped after {step} of {steps} steps',
    early: 'Stopped before the first step',
    rows: '{rows} rows a call',
    now: 'accepted now {now}, so far {share}',
    share: '{share} accepted',
    left: 'about {left} left, until {clock}',
    soon: 'about {left} left',
    stock: 'stock would take about {stock}',
    callMode: 'calls {callMode}: {callReason}',
    chart: 'accepted drafts over sigma',
    column: 'sigma {sigma}: {share} accepted',
    s: '{n} s',
    min: '{m} min {s} s',
    h: '{h} h {m} min'
  },
  zh: {
    idle: '运行时在此显示步数、模型调用次数和草稿接受率。',
    starting: '准备中：{steps} 步',
    running: '第 {step} / {steps} 步，已调用 {calls} 次',
    done: '{steps} 步，{calls} 次调用，{ratio}×，{seconds}',
    plain: '{steps} 步，{calls} 次调用，{seconds}',
    none: '无需采样：{reason}',
    reason: '普通采样：{reason}',
    cancelled: '已取消（第 {step} / {steps} 步）',
    failed: '已中止（第 {step} / {steps} 步）',
    early: '在第一步之前中止',
    rows: '每次 {rows} 行',
    now: '当前接受 {now}，总计 {share}',
    share: '接受 {share}',
    left: '剩余约 {left}，预计 {clock} 完成',
    soon: '剩余约 {left}',
    stock: '原采样器约需 {stock}',
    callMode: '调用方式 {callMode}：{callReason}',
    chart: '各 sigma 的草稿接受率',
    column: 'sigma {sigma}：接受 {share}',
    s: '{n} 秒',
    min: '{m} 分 {s} 秒',
    h: '{h} 时 {m} 分'
  },
  ja: {
    idle: '実行中にステップ数、モデル呼び出し回数、採択率を表示します。',
    starting: '準備中：{steps} ステップ',
    running: '{step} / {steps} ステップ、{calls} 回呼び出し',
    done: '{steps} ステップを {calls} 回で、{ratio}×、{seconds}',
    plain: '{steps} ステップを {calls} 回で、{seconds}',
    none: 'サンプリング不要：{reason}',
    reason: '通常のサンプラー：{reason}',
    cancelled: '{step} / {steps} ステップでキャンセル',
    failed: '{step} / {steps} ステップで停止',
    early: '最初のステップの前に停止',
    rows: '1 回 {rows} 行',
    now: '現在の採択率 {now}、全体 {share}',
    share: '採択率 {share}',
    left: '残り約 {left}、{clock} 終了予定',
    soon: '残り約 {left}',
    stock: '標準サンプラーなら約 {stock}',
    callMode: '呼び出し方法 {callMode}：{callReason}',
    chart: 'sigma ごとの採択率',
    column: 'sigma {sigma}：採択率 {share}',
    s: '{n} 秒',
    min: '{m} 分 {s} 秒',
    h: '{h} 時間 {m} 分'
  }
}

/** The phrases of a locale such as "zh-CN"; English for any that is unknown. */
export function phrases(locale) {
  return PHRASES[String(locale ?? '').slice(0, 2).toLowerCase()] ?? PHRASES.en
}

export function languages() {
  return Object.fromEntries(Object.entries(PHRASES).map(([name, list]) => [name, Object.keys(list)]))
}

export function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole))
}

/** Seconds as people say them. */
export function duration(seconds, said = PHRASES.en) {
  const whole = Math.round(seconds)
  if (seconds < 1) return fill(said.s, { n: seconds.toFixed(2) })
  if (seconds < 10) return fill(said.s, { n: seconds.toFixed(1) })
  if (whole < 60) return fill(said.s, { n: whole })
  if (whole < 3600) return fill(said.min, { m: Math.floor(whole / 60), s: whole % 60 })
  return fill(said.h, { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) })
}

export function percent(share) {
  return `${Math.round(100 * share)} %`
}

/** One or two digits after the point: 2.2, 12, 0.95. */
export function ratio(value) {
  return value < 1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : value.toFixed(0)
}

function clock(seconds, now) {
  const end = new Date(now.getTime() + 1000 * seconds)
  return `${String(end.getHours()).padStart(2, '0')}:${String(end.getMinutes()).padStart(2, '0')}`
}

/** { title, lines } of a run. */
export function describe(run, said = PHRASES.en, now = new Date()) {
  const values = {
    ...run,
    ratio: ratio(run.calls ? run.steps / run.calls : 1),
    rows: ratio(run.calls ? run.rows / run.calls : 0),
    seconds: duration(run.seconds, said)
  }
  const say = (name, more) => fill(said[name], { ...values, ...more })
  const lines = []
  const rowsAndShare = () => {
    const parts = []
    if (run.calls && run.rows) parts.push(say('rows'))
    const [share, recent] = [acceptance(run), acceptanceNow(run)]
    if (run.state === 'running' && recent !== null) parts.push(say('now', { now: percent(recent), share: percent(share) }))
    else if (share !== null) parts.push(say('share', { share: percent(share) }))
    if (parts.length) lines.push(parts.join(' · '))
  }
  switch (run.state) {
    case 'idle':
      return { title: '', lines: [said.idle] }
    case 'running': {
      if (!run.step && !run.calls) return { title: say('starting'), lines }
      rowsAndShare()
      const left = secondsLeft(run)
      if (left !== null) {
        const name = left > 60 ? 'left' : 'soon'
        lines.push(say(name, { left: duration(left, said), clock: clock(left, now) }))
      }
      return { title: say('running'), lines }
    }
    case 'done': {
      if (!run.calls) return { title: say('none'), lines }
      const plain = run.mode === 'plain'
      if (plain) lines.push(say('reason'))
      else {
        rowsAndShare()
        if (run.stock !== null) lines.push(say('stock', { stock: duration(run.stock, said) }))
        if (run.callReason && !['', 'vector', 'plain'].includes(run.callMode)) lines.push(say('callMode'))
        if (run.advice) lines.push(run.advice)
      }
      return { title: say(plain ? 'plain' : 'done'), lines }
    }
    default:
      rowsAndShare()
      if (run.words) lines.unshift(run.words)
      return { title: say(run.state === 'cancelled' ? 'cancelled' : run.step ? 'failed' : 'early'), lines }
  }
}
