#include "coflow/control/daemon/page.h"

namespace clustar::coflow::control {

// Whatever came over the wire is text: textContent, nothing else.
const char* const kPageScript = R"js(
'use strict';
const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat('en');
function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; ++i; }
  return (i === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(n >= 10 ? 1 : 2)) + ' ' + units[i];
}
function time(ms) {
  if (ms < 1) return (ms * 1000).toFixed(0) + ' us';
  if (ms < 1000) return ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0) + ' ms';
  const s = ms / 1000;
  if (s < 120) return s.toFixed(s < 10 ? 2 : 0) + ' s';
  if (s < 7200) return (s / 60).toFixed(0) + ' min';
  return s < 172800 ? (s / 3600).toFixed(1) + ' h' : (s / 86400).toFixed(1) + ' days';
}

// Rates: what was sent between two states. Of what is gone nothing is kept.
let sent = new Map(), rates = new Map(), atMs = 0;
function measure(state) {
  if (state.at_ms === atMs) return;
  const seconds = (state.at_ms - atMs) / 1000, now = new Map(), next = new Map();
  const note = (key, attained) => {
    now.set(key, attained);
    if (sent.has(key) && seconds > 0 && attained >= sent.get(key)) next.set(key, (attained - sent.get(key)) / seconds);
  };
  state.classes.forEach((one) => note(classKey(one), one.attained));
  state.agents.forEach((one) => note(agentKey(one), one.attained));
  sent = now; rates = next; atMs = state.at_ms;
}
const classKey = (one) => JSON.stringify(['class', one.job, one.communicator, one.function]);
const agentKey = (one) => JSON.stringify(['agent', one.host, one.nic, one.job, one.tenant]);
const rate = (key) => rates.has(key) ? bytes(rates.get(key)) + '/s' : '';

function bar(td, one) {
  if (!td.firstChild) {
    td.append(document.createElement('span'), document.createElement('span'));
    td.lastChild.className = 'bar';
    td.lastChild.append(document.createElement('i'));
  }
  const known = one.in_all > 0;
  td.firstChild.textContent = known ? bytes(one.left) + ' of ' + bytes(one.in_all) : one.waiting ? 'unknown' : '';
  td.lastChild.style.display = known ? '' : 'none';
  td.lastChild.firstChild.style.width = known ? Math.min(100, 100 * one.left / one.in_all) + '%' : '0';
}
function deadline(one) {
  if (!(one.deadline_ms > 0)) return '';
  const word = one.promise === 'given' ? 'promised' : one.promise === 'refused' ? 'refused' : 'not yet known';
  const all = one.in_time + one.late;
  return time(one.deadline_ms) + ', ' + word + (all > 0 ? ', ' + one.in_time + ' of ' + all + ' in time' : '');
}
// Heading, kind of the cell, and its text, or what fills it.
const classColumns = [
  ['place', '', (one) => one.rank],
  ['level', '', (one) => one.level],
  ['job', '', (one) => one.job],
  ['tenant', 'text', (one) => one.tenant],
  ['communicator', 'text code', (one) => /^0+$/.test(one.communicator) ? '' : '0x' + one.communicator],
  ['function', 'text', (one) => one.function],
  ['urgency', 'text', (one) => one.urgency],
  ['left', '', bar],
  ['rate', '', (one) => rate(classKey(one))],
  ['period', '', (one) => one.period_ms > 0 ? time(one.period_ms) : ''],
  ['iterations', '', (one) => whole.format(one.iterations)],
  ['latest took', '', (one) => one.latest_ms > 0 ? time(one.latest_ms) : ''],
  ['deadline', 'text', deadline],
  ['sending', '', (one) => one.waiting + ' of ' + one.agents],
  ['lags', 'text warn', (one) => one.lags],
];
const agentColumns = [
  ['host', 'text', (one) => one.host],
  ['NIC', 'text', (one) => one.nic],
  ['job', '', (one) => one.job],
  ['tenant', 'text', (one) => one.tenant],
  ['line', '', (one) => one.bytes_per_second > 0 ? bytes(one.bytes_per_second) + '/s' : ''],
  ['sent', '', (one) => bytes(one.attained)],
  ['rate', '', (one) => rate(agentKey(one))],
  ['classes', '', (one) => one.classes],
  ['last heard', '', (one) => time(one.silent_ms) + ' ago'],
];
function head(id, columns) {
  const row = $(id).tHead.insertRow();
  for (const [label, kind] of columns) {
    const th = document.createElement('th');
    th.textContent = label;
    th.className = kind;
    row.append(th);
  }
}
// A row for each, in this order; rows are kept, so that a selection outlives the second.
function fill(id, columns, list, keyOf) {
  const body = $(id).tBodies[0], known = new Map(), seen = new Map();
  for (const row of body.rows) known.set(row.dataset.key, row);
  list.forEach((one, i) => {
    const times = seen.get(keyOf(one)) || 0;
    seen.set(keyOf(one), times + 1);
    const key = keyOf(one) + times;
    let row = known.get(key);
    known.delete(key);
    if (!row) {
      row = document.createElement('tr');
      row.dataset.key = key;
      for (const [label, kind] of columns) {
        const td = row.insertCell();
        td.dataset.label = label;
        td.className = kind;
      }
    }
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
    columns.forEach(([, , show], at) => {
      const td = row.cells[at];
      if (show === bar) bar(td, one);
      else td.textContent = show(one);
      td.classList.toggle('empty', td.textContent === '');
    });
  });
  for (const row of known.values()) row.remove();
}
// [heading, text, raised]
function facts(id, list) {
  const box = $(id);
  while (box.children.length < list.length) {
    const div = document.createElement('div');
    div.append(document.createElement('dt'), document.createElement('dd'));
    box.append(div);
  }
  list.forEach(([label, text, raised], i) => {
    box.children[i].firstChild.textContent = label;
    box.children[i].lastChild.textContent = text;
    box.children[i].classList.toggle('raised', Boolean(raised));
  });
}
let cpu = null;
function cpuShare(state) {
  const share = cpu && state.at_ms > cpu.at ? 100 * (state.cpu_ms - cpu.ms) / (state.at_ms - cpu.at) : cpu ? cpu.share : 0;
  cpu = {at: state.at_ms, ms: state.cpu_ms, share: Math.max(0, share)};
  return cpu.share.toFixed(1) + ' %';
}
function show(state) {
  measure(state);
  // Numbers of places have gaps, so that those of others stay; people count.
  let rank = 0;
  for (const one of state.classes) one.rank = one.place > 0 ? ++rank : '';
  const role = $('role');
  role.textContent = state.stopping ? 'stopping' : state.in_charge ? 'in charge' : 'standby of ' + state.standby_of +
      (state.hears_primary ? '' : ', which is silent');
  role.className = state.stopping ? 'bad' : state.in_charge ? 'charge' : state.hears_primary ? 'standby' : 'bad';
  $('version').textContent = 'clustar ' + state.version;
  const count = state.counters;
  facts('facts', [
    ['term', state.term], ['policy', state.policy], ['agents', whole.format(state.agents_in_all)],
    ['classes', whole.format(state.classes_in_all)],
    ['interval, lease', time(state.interval_ms) + ', ' + time(state.lease_ms)],
    ['round, longest', time(state.round.latest_ms) + ', ' + time(state.round.longest_ms)],
    ['processor', cpuShare(state)], ['up for', time(state.uptime_ms)],
  ]);
  facts('counters', [
    ['rounds', whole.format(count.rounds)], ['reports', whole.format(count.reports)],
    ['orders told', whole.format(count.orders)], ['renewals', whole.format(count.renewals)],
    ['iterations held back', whole.format(count.holds)], ['times put in charge', whole.format(count.takeovers)],
    ['connections', whole.format(state.connections)],
    ['of strangers', whole.format(state.strangers)],
    ['refused', whole.format(count.refused), count.refused], ['reports too fast', whole.format(count.too_fast), count.too_fast],
    ['classes too many', whole.format(count.too_many), count.too_many],
    ['strangers turned away', whole.format(count.turned_away), count.turned_away],
    ['wrong key, or none', whole.format(count.wrong_key), count.wrong_key],
    ['nonsense', whole.format(count.nonsense), count.nonsense], ['said nothing', whole.format(count.timed_out), count.timed_out],
    ['did not read', whole.format(count.too_slow), count.too_slow],
  ]);
  const some = (shown, all) => shown < all ? 'the first ' + shown + ' of ' + whole.format(all) : '';
  $('classes-shown').textContent = some(state.classes.length, state.classes_in_all);
  $('agents-shown').textContent = some(state.agents.length, state.agents_in_all);
  $('no-classes').hidden = state.classes.length > 0;
  $('no-agents').hidden = state.agents.length > 0;
  $('classes').hidden = state.classes.length === 0;
  $('agents').hidden = state.agents.length === 0;
  fill('classes', classColumns, state.classes, classKey);
  fill('agents', agentColumns, state.agents, agentKey);
}

let heardAt = null;
async function ask() {
  try {
    const answer = await fetch('/state.json', {cache: 'no-store', signal: AbortSignal.timeout(3000)});
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
    heardAt = Date.now();
    $('lost').hidden = true;
  } catch (error) {
    $('lost').textContent = heardAt === null ? 'The coordinator does not answer.' :
        'Lost the coordinator ' + time(Date.now() - heardAt) + ' ago: what is below is as old.';
    $('lost').hidden = false;
    document.body.dataset.error = String(error);
  }
  document.body.dataset.asked = Number(document.body.dataset.asked || 0) + 1;
  setTimeout(ask, 1000);
}
head('classes', classColumns);
head('agents', agentColumns);
ask();
)js";

}  // namespace clustar::coflow::control
