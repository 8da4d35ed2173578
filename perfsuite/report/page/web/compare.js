// Any two runs beside each other: commits of this card, other cards, records; or two rivals of one kernel.
const MOST_COMPARED = 200;
const LEAST_CHANGE = 0.03;

// A case in a run: of its history, or on another card.
function inRun(one, run) {
  const past = one.history, at = past.run.indexOf(run);
  if (at >= 0) {
    const read = (name) => past[name]?.[at] ?? null;
    const share = one.sheetShare && one.seconds && read('seconds') ? (one.sheetShare * one.seconds) / read('seconds') : null;
    return { value: read('value'), low: read('low'), high: read('high'), seconds: read('seconds'), verdict: VERDICTS[past.verdicts[at]], sheetShare: share };
  }
  return one.elsewhere?.find((other) => other.run === run) ?? null;
}
const VERDICTS = { M: 'MET', X: 'MISSED', W: 'WRONG', U: 'UNDECIDED' };
const runName = (index) => `${brief(runs[index].commit)}${runs[index].date ? `, ${runs[index].date}` : ''}, ${runs[index].card ?? 'unknown card'}`;

// How the value changed, with the bounds of the ratio where both have an interval.
function ratioOf(before, after) {
  if (!known(before.value) || !known(after.value) || before.value <= 0) return null;
  const found = { ratio: after.value / before.value };
  if (known(before.low) && known(after.low)) Object.assign(found, { low: after.low / before.high, high: after.high / before.low });
  return found;
}

function comparedRuns(one, from, to) {
  const before = inRun(one, from), after = inRun(one, to);
  if (!before || !after) return null;
  const sameCard = runs[from].card === runs[to].card;
  // Between cards the share of each card's own peak is compared, not the time.
  const found = sameCard || !known(before.sheetShare) || !known(after.sheetShare)
    ? ratioOf(before, after) : { ratio: after.sheetShare / before.sheetShare };
  return found && { one, before, after, ...found, ofPeak: !sameCard };
}

function comparedRivals(from, to) {
  const name = (one) => `${one.op} ${one.case}`;
  const first = new Map(cases.filter((one) => one.rival === from && known(one.rivalSeconds)).map((one) => [name(one), one]));
  return cases.filter((one) => one.rival === to && known(one.rivalSeconds) && first.has(name(one))).map((one) => {
    const other = first.get(name(one));
    return { one, before: { seconds: other.rivalSeconds }, after: { seconds: one.rivalSeconds }, ratio: other.rivalSeconds / one.rivalSeconds };
  });
}

function sureness({ ratio, low, high }) {
  if (Math.abs(ratio - 1) < LEAST_CHANGE) return 'same';
  if (known(low)) return high < 1 ? 'worse' : low > 1 ? 'better' : 'cannot be told';
  return ratio < 1 ? 'lower' : 'higher';
}

function showComparison() {
  const kind = document.getElementById('compare-kind').value;
  const [from, to] = ['compare-from', 'compare-to'].map((id) => document.getElementById(id).value);
  const found = (kind === 'rivals' ? comparedRivals(from, to) : cases.filter((one) => one.kind in HEAT_VALUES).map((one) => comparedRuns(one, Number(from), Number(to)))).filter(Boolean)
    .sort((a, b) => a.ratio - b.ratio);
  const place = document.getElementById('compare-table');
  if (!found.length) {
    place.replaceChildren(element('p', {}, 'No case was measured in both.'));
    return;
  }
  const mean = Math.exp(found.reduce((sum, { ratio }) => sum + Math.log(ratio), 0) / found.length);
  const what = kind === 'rivals' ? `speed of ${to} against ${from}` : found[0].ofPeak ? 'share of the peak, second over first' : 'value, second over first';
  const text = (one, side) => (kind === 'rivals' ? seconds(side.seconds) : found[0].ofPeak && known(side.sheetShare) ? `${percent(side.sheetShare, false)} of peak, ${seconds(side.seconds)}` : `${valueOf(one.kind, side.value)}${known(side.seconds) ? `, ${seconds(side.seconds)}` : ''}`);
  const rows = found.slice(0, MOST_COMPARED).map(({ one, before, after, ratio, low, high }) => element('tr', {},
    element('td', {}, element('button', { type: 'button', class: 'open', onclick: () => openCase(one.id) }, `${one.case} / ${one.rival}`)),
    element('td', { class: 'number' }, text(one, before)), element('td', { class: 'number' }, text(one, after)),
    element('td', { class: 'number' }, ratio.toFixed(3)), element('td', { class: 'number' }, known(low) ? `${low.toFixed(3)} to ${high.toFixed(3)}` : '-'),
    element('td', {}, sureness({ ratio, low, high })),
    element('td', {}, before.verdict && after.verdict ? (before.verdict === after.verdict ? after.verdict : `${before.verdict} → ${after.verdict}`) : '-')));
  place.replaceChildren(
    element('p', {}, `${found.length} cases; geometric mean of the ${what}: ${mean.toFixed(3)}. The lowest come first${found.length > MOST_COMPARED ? `, ${MOST_COMPARED} of them` : ''}.`),
    element('table', { class: 'list' }, element('thead', {}, element('tr', {}, ['case', 'first', 'second', 'ratio', 'interval', 'change', 'verdict'].map((name) => element('th', { scope: 'col' }, name)))), element('tbody', {}, rows)));
}

function makeCompare() {
  const rivals = [...new Set(cases.filter((one) => known(one.rivalSeconds)).map((one) => one.rival))];
  const kinds = { ...(runs.length > 1 && { runs: 'runs' }), ...(rivals.length > 1 && { rivals: 'rivals' }) };
  if (!Object.keys(kinds).length) return;
  const options = (pairs) => pairs.map(([value, text]) => element('option', { value }, text));
  const kind = element('select', { id: 'compare-kind' }, options(Object.entries(kinds)));
  const chosen = () => {
    view.compare = { kind: kind.value, from: from.value, to: to.value };
    showComparison();
    writeAddress();
  };
  const [from, to] = ['compare-from', 'compare-to'].map((id) => element('select', { id, onchange: chosen }));
  const fill = () => {
    const ofRivals = kind.value === 'rivals';
    const all = ofRivals ? rivals.map((name) => [name, name]) : runs.map((_, index) => [String(index), runName(index)]);
    const standard = ofRivals ? rivals.slice(0, 2) : [String(page.base ?? 0), String(page.now)];
    [from, to].forEach((select, index) => {
      select.replaceChildren(...options(all));
      const asked = view.compare[['from', 'to'][index]];
      select.value = all.some(([value]) => value === asked) ? asked : standard[index];
    });
    showComparison();
  };
  showAddressedComparison = () => {
    kind.value = view.compare.kind in kinds ? view.compare.kind : Object.keys(kinds)[0];
    fill();
  };
  kind.addEventListener('change', () => { view.compare = {}; fill(); chosen(); });
  document.getElementById('compare-tools').append(
    element('label', {}, 'compare', kind), element('label', {}, 'first', from), element('label', {}, 'second', to));
  document.getElementById('compare').hidden = false;
  showAddressedComparison();
}
let showAddressedComparison = () => {};

const SIGNS = { new: '▲', standing: '■', accepted: '✓', mended: '✓' };
// The slow-downs of the history, by the recorded commits between which they happened.
function makeRegressions() {
  const list = document.getElementById('regressions-list');
  const at = ({ history }, run) => seconds(history.seconds?.[history.run.indexOf(run)]);
  for (const { before, after, cases: slower } of page.regressions) {
    const count = `${slower.length} ${slower.length === 1 ? 'case' : 'cases'} slower`;
    const rows = slower.map(({ id, growth, state, reason }) => element('tr', {},
      element('td', { class: 'number' }, percent(growth)),
      element('td', {}, element('button', { type: 'button', class: 'open', onclick: () => openCase(id) }, `${cases[id].case} / ${cases[id].rival}`)),
      element('td', { class: 'number' }, at(cases[id], before)), element('td', { class: 'number' }, at(cases[id], after)),
      element('td', { class: `state ${state}` }, `${SIGNS[state]} ${state}${reason ? `: ${reason}` : ''}`)));
    const head = ['growth', 'case', 'time before', 'after', 'state'].map((name) => element('th', { scope: 'col' }, name));
    list.append(element('h3', {}, `${count} between `, commitNode(before), ' and ', commitNode(after), runs[after].date ? `, ${runs[after].date}` : ''),
      element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${count} at ${brief(runs[after].commit)}` },
        element('table', { class: 'list' }, element('thead', {}, element('tr', {}, head)), element('tbody', {}, rows))));
  }
  if (!page.regressions.length) list.append(element('p', {}, runs.length > 1 ? 'No case got slower between two recorded runs.' : 'There is no earlier run.'));
  document.getElementById('regressions').hidden = false;
}
