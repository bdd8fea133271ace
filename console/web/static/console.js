// What pages gain with JavaScript: charts, shorter lists of live messages, questions before a change.
"use strict";

(() => {
  const CHART_EVERY_MS = 2000;
  const SPAN_S = 300;
  const ROWS_MAX = 300;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The last minutes, also before the first sample, and with it alone: uPlot makes a day of one.
  function span(plot) {
    const times = plot.data?.[0] ?? [];
    const end = times.at(-1) ?? Date.now() / 1000;
    return [Math.min(times[0] ?? end, end - SPAN_S), end];
  }

  // Times are in UTC, as on all pages.
  function clock(seconds) {
    const text = new Date(seconds * 1000).toISOString().slice(11, 19);
    return text.endsWith(":00") ? text.slice(0, 5) : text;
  }

  function chart(box) {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const series = [{}, ...box.dataset.series.split("|").map((label, index) => ({
      label, stroke: colour(index ? "--warn" : "--accent"), width: 1.5, points: { show: false },
    }))];
    const plot = new uPlot({
      width: box.clientWidth, height: 150, series, axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 60 }],
      legend: { live: false },
      scales: { x: { range: span }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    }, [[], [], []], box);
    new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: 150 })).observe(box);
    const load = async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(box.dataset.url);
        if (answer.ok) plot.setData(await answer.json());
      } catch { /* the page says that the console does not answer */ }
    };
    load();
    setInterval(load, CHART_EVERY_MS);
  }

  function shorten(list) {
    while (list.children.length > ROWS_MAX) list.lastElementChild.remove();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-series]").forEach(chart);
    // On a phone the menu is one line that scrolls.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    document.querySelectorAll("[data-pause]").forEach((button) => {
      const target = document.querySelector(button.dataset.pause);
      button.hidden = false;
      button.addEventListener("click", () => {
        const paused = target.toggleAttribute("data-paused");
        button.textContent = paused ? "Continue" : "Pause";
      });
    });
    document.querySelectorAll("[data-all]").forEach((box) => {
      box.addEventListener("change", () => {
        document.querySelectorAll(box.dataset.all).forEach((each) => { each.checked = box.checked && !each.disabled; });
      });
    });
  });

  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (event.target.hasAttribute("data-paused")) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.hasAttribute("data-shorten")) shorten(event.target);
  });
  // How many dead letters go where; without one there is nothing to ask.
  function aboutLetters(form) {
    const all = form.elements.which.value === "all";
    const chosen = form.querySelectorAll("input[name=letter]:checked:not(:disabled)").length;
    if (!all && chosen === 0) return null;
    const number = all ? `all ${form.dataset.total}` : chosen;
    const to = form.elements.to.value === "group"
      ? `to the group ${form.dataset.askLetters} only` : "to their topics, where all groups get them";
    return `Send ${number} dead letter${number === 1 ? "" : "s"} again, ${to}?`;
  }

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.ask
      ?? ("askLetters" in event.target.dataset ? aboutLetters(event.target) : null);
    if (question && !window.confirm(question)) event.preventDefault();
  });
})();
