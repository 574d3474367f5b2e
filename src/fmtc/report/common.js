"use strict";
const common = (() => { // what all pages do: theme, sorted tables, copying, saving, printing
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const data = JSON.parse($("#data").textContent);
  const root = document.documentElement;
  const say = (words) => { $("#live").textContent = words; };
  const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  // ------------------------------------------------------------------------------------------------- theme
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("fmtc-theme"); } catch { return null; } };
  let repaint = () => {};
  function setTheme(theme) {
    root.dataset.theme = theme;
    $("#theme").setAttribute("aria-pressed", String(theme === "dark"));
    repaint();
  }
  $("#theme").addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("fmtc-theme", theme); } catch { /* a browser that keeps nothing */ }
    setTheme(theme);
  });
  wanted.addEventListener("change", () => { if (!kept()) setTheme(wanted.matches ? "dark" : "light"); });

  // ------------------------------------------------------------------------------------------------ tables
  function sort(table, head, up) {
    const heads = $$("thead th", table), column = heads.indexOf(head), numeric = head.classList.contains("num");
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => {
      const cell = row.cells[column], value = cell.dataset.value;
      if (value !== undefined) return value === "" ? null : Number(value);
      return numeric ? null : cell.textContent.trim();
    };
    const rows = $$("tbody tr", table).map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // what is not known comes last
      const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      return up ? order : -order;
    });
    $("tbody", table).append(...rows.map(([, row]) => row));
  }
  for (const table of $$("table.sortable")) {
    table.addEventListener("click", (event) => {
      const button = event.target.closest(".sort");
      if (!button) return;
      const head = button.closest("th"), was = head.getAttribute("aria-sort");
      const best = head.dataset.first ? head.dataset.first === "up" : !head.classList.contains("num");
      const up = was ? was === "descending" : best; // numbers: the largest first, but where a small one is better
      sort(table, head, up);
      say(`Sorted by ${button.textContent.trim()}, ${up ? "ascending" : "descending"}`);
    });
  }

  // ---------------------------------------------------------------------------------------- copying, saving
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission, or a browser that has no clipboard for files
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) throw new Error("not copied");
    }
  }
  if ($("#copy")) $("#copy").addEventListener("click", async () => {
    const button = $("#copy");
    try {
      await copy($("#code").textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren($("#code"));
      button.textContent = "Selected: press Ctrl C";
    }
    say(button.textContent);
    button.focus();
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  function save(name, kind, text) {
    const link = document.createElement("a"), url = URL.createObjectURL(new Blob([text], { type: kind }));
    link.href = url;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    say(`Saving ${name}`);
  }

  // ------------------------------------------------------------------------------------- printing, starting
  function start(page = {}) { // repaint: after a change of theme; print: when all must be there
    repaint = page.repaint || repaint;
    let before = null;
    addEventListener("beforeprint", () => {
      before = { theme: root.dataset.theme, closed: $$("details.legend:not([open])") };
      setTheme("light");
      before.closed.forEach((one) => { one.open = true; });
      if (page.print) page.print();
    });
    addEventListener("afterprint", () => {
      if (!before) return;
      setTheme(before.theme);
      before.closed.forEach((one) => { one.open = false; });
      before = null;
    });
    setTheme(kept() || (wanted.matches ? "dark" : "light"));
    requestAnimationFrame(() => { root.dataset.ready = String(Math.round(performance.now())); });
  }
  return { $, $$, data, root, say, plural, sort, save, start };
})();
