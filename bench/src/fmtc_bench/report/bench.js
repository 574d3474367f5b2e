(() => { // the page of a comparison
  const { $, $$, data, say, plural, sort, save, start } = common;
  const { datasets, methods, cells, views, modes, parts, scope, score: first } = data.table;
  const state = { score: first, part: "out", mode: Object.keys(modes)[0], scope, dataset: "" };
  const table = $("#score-table");
  const cell = new Map(cells.map((c) => [JSON.stringify([c.mode, c.method, c.dataset]), c]));
  const at = (method, dataset) => cell.get(JSON.stringify([state.mode, method.name, dataset.name]));

  function make(name, attributes = {}, ...inside) {
    const one = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined) one.setAttribute(key, value);
    one.append(...inside);
    return one;
  }
  const hidden = (words) => make("span", { class: "hidden" }, words);
  const percent = (value, digits = 1) => (100 * value).toFixed(digits);

  // ------------------------------------------------------------------------------------------------- table
  const inScope = (one) => state.scope === "all" || (one.kind ? one.kind === state.scope : !one.variant);
  const columns = () => datasets.filter((d) => inScope(d) && (!state.dataset || d.name === state.dataset) && methods.some((m) => inScope(m) && at(m, d)));
  const lines = (shown) => methods.filter((m) => inScope(m) && shown.some((d) => at(m, d)));
  const view = () => views[`${state.scope} ${state.mode} ${state.score} ${state.part}`];
  function seconds(method, shown) {
    const found = shown.map((d) => at(method, d)).filter((c) => c && c.n).map((c) => c.seconds);
    return found.length ? found.reduce((a, b) => a + b) / found.length : null;
  }
  function heading(title, kind, first, hint) {
    const button = make("button", { type: "button", class: "sort" }, title, make("span", { class: "arrow", "aria-hidden": "true" }));
    return make("th", { scope: "col", class: kind, "data-title": title, "data-first": first, title: hint }, button);
  }
  function score(method, dataset) {
    const c = at(method, dataset), label = { "data-label": dataset.title };
    if (!c) return make("td", { class: "num nothing", ...label }, make("span", { "aria-label": "not run" }, "–"));
    const [mean, spread, printed] = c[state.score][state.part];
    const said = printed === null ? [] : [make("i", { class: "paper" }, hidden(", in the paper "), percent(printed, 2))];
    if (!c.n) return make("td", { class: "num", ...label }, make("span", { class: "failed" }, "failed"), ...said);
    if (mean === null) return make("td", { class: "num nothing", ...label }, make("span", { "aria-label": "not known" }, "–"), ...said);
    const best = !c.failed && mean >= view().best[dataset.name], value = make("b", {}, percent(mean));
    if (c.collapsed) value.prepend(make("span", { title: "all rows in one cluster, or nearly" }, "°"));
    const one = make("td", { class: best ? "num best" : "num", "data-value": mean, ...label }, make("span", { class: "ours" }, value));
    if (best) value.append(hidden(", best"));
    if (spread !== null) one.firstChild.append(" ", make("span", { class: "spread" }, `± ${percent(spread)}`));
    if (c.failed) one.append(make("span", { class: "failed" }, `${c.failed} failed`));
    one.append(...said);
    return one;
  }
  function line(method, shown) {
    const rank = view().ranks[method.name], time = seconds(method, shown);
    const number = (value, digits, label) => value === undefined || value === null
      ? make("td", { class: "num nothing", "data-label": label }, "–")
      : make("td", { class: "num", "data-value": value, "data-label": label }, value.toFixed(digits));
    const row = make("tr", { "data-group": method.group, "data-method": method.name },
      make("th", { scope: "row", class: "text" }, make("bdi", {}, method.title)),
      make("td", { class: "text", "data-label": "Group" }, make("span", { class: "tag" }, method.group)),
      make("td", { class: "text shares", "data-label": "Leaves a client" }, method.shares || "–"),
      number(rank, 1, "Rank"), ...shown.map((d) => score(method, d)), number(time, time < 10 ? 2 : 1, "Seconds"));
    return row;
  }
  function draw() {
    const sorted = $("th[aria-sort]", table), was = sorted ? [sorted.dataset.title, sorted.getAttribute("aria-sort") === "ascending"] : ["Rank", true];
    const shown = columns(), n = view().n;
    const over = n ? `rank over ${plural(n, state.scope === "test" ? "federation" : "data set")}` : "no data set that all were run on, so no rank";
    $("thead tr", table).replaceChildren(
      heading("Method", "text"), heading("Group", "text"), heading("Leaves a client", "text", undefined, "The largest thing that a client sends"),
      heading("Rank", "num", "up", "Place among the methods of this table; 1 is best"), ...shown.map((d) => heading(d.title, "num")),
      heading("Seconds", "num", "up", "Of one fit, mean over the data sets shown"));
    $("tbody", table).replaceChildren(...lines(shown).map((m) => line(m, shown)));
    const heads = $$("thead th", table), again = heads.find((head) => head.dataset.title === was[0]);
    sort(table, again || heads[3], again ? was[1] : true);
    $("#order").replaceChildren(...heads.map((head) => make("option", {}, head.dataset.title)));
    $("#order").value = $("th[aria-sort]", table).dataset.title;
    $("#shown").textContent = `${state.score === "frozen" ? "ACC, matching frozen," : state.score.toUpperCase()} on ${parts[state.part]}, ${modes[state.mode]}; ${over}`;
    filter();
  }
  function filter() {
    const find = $("#find").value.trim().toLowerCase(), rows = $$("tbody tr", table);
    for (const row of rows) {
      const words = [...row.cells].slice(0, 3).map((one) => one.textContent).concat(row.dataset.method).join(" ").toLowerCase();
      row.hidden = !words.includes(find);
    }
    const shown = rows.filter((row) => !row.hidden).length;
    $("#counted").textContent = shown < rows.length ? `${shown} of ${plural(rows.length, "method")} shown` : plural(rows.length, "method");
  }

  // ---------------------------------------------------------------------------------------------- switches
  for (const input of $$(".choice input")) {
    input.checked = state[input.name] === input.value;
    input.addEventListener("change", () => {
      state[input.name] = input.value;
      if (input.name === "scope") offer();
      draw();
      say($("#shown").textContent);
    });
  }
  function offer() { // data sets to choose from
    const names = datasets.filter(inScope);
    if (!names.some((d) => d.name === state.dataset)) state.dataset = "";
    $("#dataset").replaceChildren(make("option", { value: "" }, "all data sets"), ...names.map((d) => make("option", { value: d.name }, d.title)));
    $("#dataset").value = state.dataset;
  }
  $("#dataset").addEventListener("change", (event) => { state.dataset = event.target.value; draw(); });
  $("#order").addEventListener("change", (event) => {
    const button = $$("thead .sort", table)[event.target.selectedIndex];
    button.closest("th").removeAttribute("aria-sort");
    button.click();
  });
  table.addEventListener("click", () => { $("#order").value = $("th[aria-sort]", table).dataset.title; });
  $("#find").addEventListener("input", filter);

  // ------------------------------------------------------------------------------------------------ saving
  function told() { // the table as it is shown, in its order
    const shown = columns(), by = new Map(methods.map((m) => [m.name, m])), { ranks, best } = view();
    const rows = $$("tbody tr", table).filter((row) => !row.hidden).map((row) => by.get(row.dataset.method));
    const entry = (c, d) => {
      const [mean, sd, paper] = c[state.score][state.part];
      return { mean, sd, paper, best: mean !== null && !c.failed && mean >= best[d.name], trial: c.trial, runs: c.n, failed: c.failed, collapsed: c.collapsed, seconds: c.seconds };
    };
    return {
      score: state.score, rows: parts[state.part], setting: modes[state.mode],
      methods: rows.map((m) => ({
        method: m.name, title: m.title, group: m.group, leaves_a_client: m.shares, rank: ranks[m.name] ?? null, seconds: seconds(m, shown),
        datasets: Object.fromEntries(shown.filter((d) => at(m, d)).map((d) => [d.name, entry(at(m, d), d)])),
      })),
    };
  }
  $("#save-table").addEventListener("click", () => save(`${state.score}-${state.part}-${state.mode}.json`, "application/json", `${JSON.stringify(told(), null, 1)}\n`));
  $("#save-rows").addEventListener("click", () => save("rows.csv", "text/csv", data.rows));

  offer();
  draw();
  start();
})();
