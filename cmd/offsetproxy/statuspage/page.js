"use strict";
// The server has shown one status. From here on each new one is fetched and put into
// the same places; rates come from the differences. Texts are only ever set as text.
(() => {
  const every = 1000, patience = 4000, kept = 61, smooth = 5;
  const samples = []; // the last documents' numbers, the newest last
  const node = (id) => document.getElementById(id);

  // As the server writes them.
  const thousands = (n) => Math.round(n).toLocaleString("en-US");
  const bytesInWords = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
    return (unit === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + units[unit];
  };
  const inWords = (seconds) => {
    const s = Math.max(Math.floor(seconds), 0), whole = (n) => Math.floor(n);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${whole(s / 60)} min ${s % 60} s`;
    if (s < 48 * 3600) return `${whole(s / 3600)} h ${whole(s % 3600 / 60)} min`;
    return `${whole(s / 86400)} d ${whole(s % 86400 / 3600)} h`;
  };
  const clock = (text) => new Date(text).toISOString().slice(0, 19).replace("T", " ") + "Z";
  const rate = (n) => n === null ? "–" : n >= 100 ? thousands(n) : n >= 10 ? n.toFixed(0) : n === 0 ? "0" : n.toFixed(1);
  const ratio = (a, b) => b > 0 ? (a / b).toFixed(2) : "–";
  const sum = (counts) => Object.values(counts || {}).reduce((a, b) => a + b, 0);
  const sorted = (counts) => Object.keys(counts || {}).sort().map((name) => [name, counts[name]]);

  // Samples: what rates are made of.
  const numbersOf = (d) => {
    const o = d.appends.outcomes || {}, at = Date.parse(d.at) / 1000;
    const numbers = new Map([
      ["won", (o.won || 0) + (o.replayed || 0)],
      ["refused", (o.taken || 0) + (o.not_reached || 0) + (o.predecessor_refused || 0)],
      ["attempts", d.appends.attempts], ["lost", d.appends.lost_races],
      ["requests", d.traffic.requests], ["in", d.traffic.bytes_in], ["out", d.traffic.bytes_out],
      ["dial_errors", d.traffic.dial_errors],
    ]);
    const counted = { outcome: o, limit: d.limits_hit, retry: d.appends.retries, refusal: d.appends.refusals, observed: d.appends.observed, malformed: d.traffic.malformed };
    for (const [kind, counts] of Object.entries(counted)) {
      for (const name in counts || {}) numbers.set(kind + " " + name, counts[name]);
    }
    for (const p of d.partitions || []) {
      numbers.set(`appended ${p.topic}/${p.partition}`, p.appended);
      numbers.set(`refused ${p.topic}/${p.partition}`, p.refused);
      numbers.set(`attempts ${p.topic}/${p.partition}`, p.attempts);
    }
    return { at, uptime: d.uptime_seconds, numbers };
  };
  const take = (d) => {
    const s = numbersOf(d), last = samples[samples.length - 1];
    if (last && s.at <= last.at) return;
    if (last && s.uptime < last.uptime) samples.length = 0; // another process
    samples.push(s);
    if (samples.length > kept) samples.shift();
  };
  // change of a number over the last seconds; null: not known. Missing: what one that
  // was not there is taken for.
  const change = (name, from = Math.max(samples.length - 1 - smooth, 0), to = samples.length - 1, missing = undefined) => {
    if (from >= to) return null;
    const a = samples[from].numbers.get(name) ?? missing, b = samples[to].numbers.get(name) ?? missing;
    if (a === undefined || b === undefined) return null;
    return { n: Math.max(b - a, 0), seconds: samples[to].at - samples[from].at };
  };
  const perSecond = (name, from, to, missing) => {
    const c = change(name, from, to, missing);
    return c === null ? null : c.n / c.seconds;
  };
  // The same of a number that appears once it is not 0.
  const perSecondOf = (name) => perSecond(name, undefined, undefined, 0);
  const triesLately = (attempts, appended, a, b) => {
    const tries = change(attempts), won = change(appended);
    return won && won.n > 0 ? ratio(tries.n, won.n) : ratio(a, b);
  };

  // The tables, as the server makes them.
  const cell = (text, tone = "", below = "") => ({ text: String(text), tone, below: below || "" });
  const number = (n) => cell(thousands(n));
  const words = JSON.parse(node("words").textContent);
  const rows = {
    partitions: (d) => (d.partitions || []).slice().sort((a, b) => {
      const trouble = (p) => words.partition_tones[p.state] === "bad" ? 0 : 1;
      return trouble(a) - trouble(b) || (a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition);
    }).map((p) => {
      const name = `${p.topic}/${p.partition}`, tone = words.partition_tones[p.state] || "";
      if (p.state === "busy") return [cell(name), cell(p.state, tone), ...Array(9).fill(cell("–"))];
      return [
        cell(name, "", p.why), cell(p.state, tone), cell((p.next_known ? "" : "≥ ") + thousands(p.next_offset)), cell(p.leader >= 0 ? p.leader : "–"),
        cell(rate(perSecond("appended " + name))), cell(rate(perSecond("refused " + name))),
        cell(triesLately("attempts " + name, "appended " + name, p.attempts, p.appended)),
        number(p.waiting), number(p.upstream), number(p.unknown), cell(words.turns[p.turn] || p.turn),
      ];
    }),
    events: (d) => [["violation", d.violations], ["alarm", d.alarms]].flatMap(([kind, list]) =>
      (list || []).map((e) => [cell(clock(e.at)), cell(`${e.topic}/${e.partition}`), cell(kind, "bad", e.what)])),
    outcomes: (d) => words.outcomes.map(([name, meaning, tone, always]) => [name, meaning, tone, always, (d.appends.outcomes || {})[name] || 0])
      .filter(([, , , always, n]) => always || n > 0)
      .map(([name, meaning, tone, , n]) => [cell(name, n === 0 ? "faint" : tone, meaning), number(n), cell(rate(perSecond("outcome " + name)))]),
    brokers: (d) => (d.brokers || []).map((b) => [
      cell(b.node), b.in_cluster ? cell(b.state, words.broker_tones[b.state], b.failure) : cell("left the cluster", "quiet", b.failure),
      cell(b.upstream), cell(Object.keys(b.addresses).sort().map((name) => b.addresses[name]).join(", "), b.hidden ? "bad" : "", sorted(b.hidden).map(([name, why]) => `hidden at ${name}: ${why}`).join("; ")), cell(b.marks_by, "", b.problem),
    ]),
    listeners: (d) => (d.listeners || []).map((l) => [
      cell(l.name), cell(l.address, "", l.server_names ? "brokers by name, under " + l.server_names : ""),
      cell((l.tls ? "TLS" : "plain") + (l.login ? ", own users" : "")), number(l.connections),
    ]),
    rules: (d) => [
      ...(d.rules || []).map((r) => [
        r.topics_regexp ? cell(r.topics_regexp, "", "regular expression") : cell(r.topics || ""),
        cell(r.mode, "", [words.modes[r.mode], ...sorted(r.options).map(([name, value]) => name + " " + value)].join("; ")),
      ]),
      [cell("every other topic", "faint"), cell(d.default_mode, "", words.modes[d.default_mode])],
    ],
    topics: (d) => (d.topics || []).flatMap((p) => [
      ...(p.refusal ? [[cell(p.topic), p.observed ? cell("could not be served", "warn", p.refusal) : cell("not served", "bad", p.refusal)]] : []),
      ...(p.weak ? [[cell(p.topic), cell("can lose records", "warn", p.weak)]] : []),
    ]),
    limits: (d) => [
      ["limit that was hit", "limit", d.limits_hit], ["reason to give batches back", "retry", d.appends.retries], ["reason to refuse batches before the fence", "refusal", d.appends.refusals],
      ["what a rule that only observes would have said", "observed", d.appends.observed], ["reason to end a client's connection", "malformed", d.traffic.malformed],
    ].flatMap(([below, kind, counts]) => sorted(counts).map(([name, n]) => [cell(name, "", below), number(n), cell(rate(perSecondOf(kind + " " + name)))]))
      .concat(d.traffic.dial_errors > 0 ? [[cell("dial_errors", "", "connections to brokers that could not be opened"), number(d.traffic.dial_errors), cell(rate(perSecondOf("dial_errors")))]] : []),
    process: (d) => {
      const list = [[cell("Memory for frames"), cell(bytesInWords(d.memory.request_bytes + d.memory.answer_bytes), "", "of " + bytesInWords(d.memory.max_bytes))]];
      const add = (...cells) => list.push(cells);
      if (d.agreement) add(cell("Agreement"), cell(d.agreement.hash, "", "the same in all proxies of the cluster; since " + clock(d.agreement.since)));
      const c = d.configuration;
      if (c) add(cell("Configuration"), cell(c.file, "", `rules of ${clock(c.rules_since)}; read again ${c.taken + c.refused} times, ${c.refused} refused`));
      if (c && c.last_refused) add(cell("Last refused"), cell(clock(c.last_refused.at), "", c.last_refused.places.join(", ")));
      for (const t of d.certificates) add(cell("Certificate of " + t.side), cell(clock(t.expires), "", "expires in " + inWords((Date.parse(t.expires) - Date.parse(d.at)) / 1000)));
      if (d.drain) add(cell("Drain"), cell(thousands(d.drain.connections_left) + " connections left", "", `at most ${d.drain.timeout_seconds} s`));
      return list;
    },
  };
  const leftOut = { partitions: "partitions_left_out", brokers: "brokers_left_out", rules: "rules_left_out" };

  // Showing: what has not changed is not touched, so that selections stay.
  const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const setClass = (element, name) => { if (element.className !== name) element.className = name; };
  const fill = (parent, count, make) => {
    while (parent.children.length > count) parent.lastElementChild.remove();
    while (parent.children.length < count) parent.append(make());
    return parent.children;
  };
  const showTable = (id, list, more) => {
    const section = node(id), table = section.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const shown = fill(table.tBodies[0], list.length, () => {
      const row = document.createElement("tr");
      for (const head of heads) {
        const td = document.createElement("td");
        td.className = head.className;
        td.dataset.label = head.textContent;
        td.append(document.createElement("span"));
        row.append(td);
      }
      return row;
    });
    list.forEach((cells, i) => cells.forEach((c, j) => {
      const td = shown[i].cells[j];
      setText(td.firstElementChild, c.text);
      setClass(td.firstElementChild, c.tone ? "text " + c.tone : "text");
      let below = td.children[1];
      if (!c.below) { if (below) below.remove(); return; }
      if (!below) { below = document.createElement("span"); below.className = "below"; td.append(below); }
      setText(below, c.below);
    }));
    table.hidden = list.length === 0;
    section.querySelector(".empty").hidden = list.length > 0;
    const note = section.querySelector(".note");
    note.hidden = !more;
    if (more) setText(note, thousands(more) + " more are not shown.");
  };
  const showTile = (id, value, detail) => {
    const tile = node("tile-" + id);
    setText(tile.querySelector(".value"), value);
    setText(tile.querySelector(".detail"), detail);
  };
  // A line of the last minute, for the eye only.
  const svg = "http://www.w3.org/2000/svg";
  const showLine = (id, name) => {
    const points = [];
    for (let i = 1; i < samples.length; i++) points.push(perSecond(name, i - 1, i) || 0);
    const tile = node("tile-" + id);
    let line = tile.querySelector("polyline");
    if (!line) {
      const box = document.createElementNS(svg, "svg");
      box.setAttribute("viewBox", "0 0 60 20");
      box.setAttribute("preserveAspectRatio", "none");
      box.setAttribute("aria-hidden", "true");
      line = box.appendChild(document.createElementNS(svg, "polyline"));
      tile.append(box);
    }
    const most = Math.max(...points, 1e-9), step = 60 / Math.max(points.length - 1, 1);
    line.setAttribute("points", points.map((y, i) => `${(i * step).toFixed(1)},${(19 - 18 * y / most).toFixed(2)}`).join(" "));
  };
  const show = (d) => {
    take(d);
    const o = d.appends.outcomes || {}, n = samples[samples.length - 1].numbers;
    const state = node("state");
    state.dataset.state = d.state;
    setText(state, words.states[d.state] || d.state);
    document.title = `${words.states[d.state] || d.state} – offsetproxy`;
    setText(node("version"), d.version);
    setText(node("uptime"), inWords(d.uptime_seconds));
    if (d.agreement && node("agreement")) setText(node("agreement"), d.agreement.hash);
    const list = d.attention.length > 0 ? d.attention : [{ severity: "fine", what: "Nothing needs a person." }];
    const items = fill(node("attention"), list.length, () => {
      const item = document.createElement("li");
      item.append(document.createElement("b"), " ", document.createElement("span"));
      return item;
    });
    list.forEach((a, i) => {
      setClass(items[i], a.severity);
      setText(items[i].firstElementChild, a.severity === "fine" ? "all well" : a.severity);
      setText(items[i].lastElementChild, a.what);
    });
    showTile("won", rate(perSecondOf("won")) + " /s", thousands(n.get("won")) + " in all");
    showTile("refused", rate(perSecondOf("refused")) + " /s", thousands(n.get("refused")) + " in all");
    showTile("races", triesLately("attempts", "won", d.appends.attempts, n.get("won")), rate(perSecondOf("lost")) + " races lost /s, " + thousands(d.appends.lost_races) + " in all");
    showTile("unknown", thousands(d.appends.unknown), thousands(o.unknown || 0) + " told so in all");
    showTile("connections", thousands(d.connections.open), "of " + thousands(d.connections.max) + " at most");
    showTile("traffic", rate(perSecondOf("requests")) + " /s", samples.length > 1 ? bytesInWords(perSecondOf("in")) + "/s in, " + bytesInWords(perSecondOf("out")) + "/s out" : thousands(d.traffic.requests) + " in all");
    showLine("won", "won");
    showLine("refused", "refused");
    showLine("races", "lost");
    showLine("traffic", "requests");
    for (const id in rows) showTable(id, rows[id](d), leftOut[id] ? d[leftOut[id]] : 0);
  };

  // Asking, for as long as somebody looks.
  const contact = node("contact");
  let seen = null;
  const told = (live, text) => {
    document.body.classList.toggle("lost", !live);
    setText(contact, text);
  };
  const ask = async () => {
    try {
      const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(patience) });
      if (!answer.ok) throw new Error("status " + answer.status);
      const d = await answer.json();
      show(d);
      seen = new Date();
      told(true, "live");
    } catch {
      told(false, "lost contact" + (seen ? " at " + seen.toISOString().slice(11, 19) + "Z: what is below is of then" : ""));
    }
    setTimeout(next, every);
  };
  const next = () => {
    if (document.hidden) document.addEventListener("visibilitychange", ask, { once: true });
    else ask();
  };
  ask();
})();
