// Draws the page's figures with Plotly, resolves their colour tokens, and follows the reader's theme.
"use strict";
(() => {
  const { figures, themes, scales } = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const theme = () => (dark.matches && !paper.matches ? "dark" : "light");
  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

  function colour(token, name) {
    const key = token.slice(6);
    if (key[0] === "~") {
      const scale = scales[name];
      const place = parseFloat(key.slice(1)) * (scale.length - 1);
      const low = Math.min(Math.floor(place), scale.length - 2);
      const [a, b] = [channels(scale[low]), channels(scale[low + 1])];
      return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * (place - low))).join(",")})`;
    }
    const [base, percent] = key.split("/");
    return percent ? `rgba(${channels(themes[name][base]).join(",")},${percent / 100})` : themes[name][base];
  }

  function resolved(part, name) {
    if (Array.isArray(part)) return part.map((value) => resolved(value, name));
    if (part && typeof part === "object") {
      return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, resolved(value, name)]));
    }
    return typeof part === "string" && part.startsWith("theme:") ? colour(part, name) : part;
  }

  const config = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };
  const hidden = (plot) => plot.closest("details:not([open])") !== null;

  function scalable(plot) {
    // With a view box the drawing can be scaled for print, where nothing is drawn again.
    const { width, height } = plot._fullLayout;
    plot.style.setProperty("--ratio", `${width} / ${height}`);
    for (const svg of plot.querySelectorAll(".main-svg")) {
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("preserveAspectRatio", "none");
    }
  }

  function fitNumbers(figure, width) {
    // Numbers in a heat map's squares need room; on hovering they are told anyway.
    for (const trace of figure.data) {
      if (trace.texttemplate && (width - 80) / trace.x.length < 32) delete trace.texttemplate;
    }
  }

  async function draw(plot) {
    const name = theme();
    if (hidden(plot) || plot.dataset.theme === name) return;
    const figure = resolved(figures[plot.dataset.figure], name);
    fitNumbers(figure, plot.clientWidth);
    await Plotly.react(plot, figure.data, figure.layout, config);
    if (!plot.dataset.theme) plot.on("plotly_afterplot", () => scalable(plot));
    plot.dataset.theme = name;
    scalable(plot);
  }

  const plots = [...document.querySelectorAll(".plot")];
  let turn = 0;
  async function drawAll() {
    const mine = ++turn;
    document.documentElement.dataset.drawn = "no";
    for (const plot of plots) {
      if (mine !== turn) return;
      await draw(plot);
      // A breath between figures keeps the page scrolling while it draws.
      await new Promise((done) => setTimeout(done));
    }
    document.documentElement.dataset.drawn = "yes";
  }

  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", drawAll);
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => plots.forEach(draw));
  window.addEventListener("afterprint", drawAll);
  drawAll();
})();
