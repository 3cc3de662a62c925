// Curves over epochs: a view is chosen, norms are switched on and off, the legend shows the values at the pointer.
const SVG = "http://www.w3.org/2000/svg";
const make = (parent, name, attributes = {}, text = "") => {
  const drawn = parent.namespaceURI === SVG || name === "svg";
  const element = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
};
const colourOf = (entry) => (entry.colour === null ? "base" : "c" + entry.colour);
const rounded = (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(4))));

// Round numbers between two ends, about as many as asked for.
const ticks = (low, high, wanted) => {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
};

for (const plot of document.querySelectorAll(".plot")) {
  const { names, views } = JSON.parse(document.getElementById(plot.dataset.source).textContent);
  const hidden = new Set();
  let view = views[0];

  const chooser = make(make(plot, "label"), "select", { "aria-label": "what to show" });
  views.forEach((each, i) => make(chooser, "option", { value: i }, each.title));
  const svg = make(plot, "svg", { class: "curves", role: "img" });
  const legend = make(plot, "ul", { class: "legend" });
  const values = names.map((entry, i) => {
    const button = make(make(legend, "li"), "button", { type: "button", "aria-pressed": "true" });
    const swatch = make(button, "svg", { viewBox: "0 0 32 8", "aria-hidden": "true" });
    make(swatch, "line", { class: "line " + colourOf(entry), "stroke-dasharray": entry.dash, x2: 32, y1: 4, y2: 4 });
    make(button, "span", {}, entry.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(i)) hidden.add(i);
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      draw();
    });
    return make(button, "span", { class: "value" });
  });

  let scale; // of what is drawn now: epochs to and from pixels
  const draw = () => {
    const width = Math.max(plot.clientWidth, 240);
    const height = width < 500 ? 240 : 340;
    const [left, right, top, bottom] = [46, 12, 10, 34];
    const lines = view.lines.filter((line) => !hidden.has(line.name));
    const ends = lines.flatMap((line) =>
      line.mean.flatMap((mean, i) => (mean === null ? [] : [mean - line.deviation[i], mean + line.deviation[i]])));
    let [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    if (high - low < view.span) [low, high] = [(low + high - view.span) / 2, (low + high + view.span) / 2];
    const epochs = Math.max(...view.lines.map((line) => line.mean.length));
    const x = (epoch) => left + ((epoch - 1) / Math.max(epochs - 1, 1)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    const at = (pixel) => ((pixel - left) / (width - left - right)) * (epochs - 1) + 1;
    scale = { x, at, epochs, top, foot: height - bottom };

    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", view.title);
    for (const value of ticks(low, high, height / 60)) {
      make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) });
      make(svg, "text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, rounded(value));
    }
    for (const value of ticks(1, Math.max(epochs, 2), width / 90)) {
      if (Number.isInteger(value) && value <= epochs)
        make(svg, "text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, String(value));
    }
    make(svg, "text", { x: width - right, y: height - 4, "text-anchor": "end" }, "epoch");
    for (const line of lines) {
      const there = line.mean
        .map((mean, i) => ({ mean, x: x(i + 1).toFixed(1), spread: line.deviation[i] }))
        .filter((point) => point.mean !== null);
      const path = (points, value) => points.map((point) => `${point.x} ${y(value(point)).toFixed(1)}`).join("L");
      const [entry, middle] = [names[line.name], path(there, (point) => point.mean)];
      const upper = path(there, (point) => point.mean + point.spread);
      const lower = path([...there].reverse(), (point) => point.mean - point.spread);
      make(svg, "path", { class: "band " + colourOf(entry), d: `M${upper}L${lower}Z` });
      const curve = { class: "line " + colourOf(entry), "stroke-dasharray": entry.dash, d: "M" + middle };
      make(make(svg, "path", curve), "title", {}, entry.name);
      if (there.length === 1) // of one epoch there is no line
        make(svg, "circle", { class: "mean " + colourOf(entry), cx: there[0].x, cy: y(there[0].mean), r: 4 });
    }
    read(epochs);
  };
  // The values of one epoch, in the legend.
  const read = (epoch) => {
    names.forEach((entry, i) => {
      const line = view.lines.find((each) => each.name === i);
      values[i].parentElement.hidden = !line;
      values[i].textContent = line ? rounded(line.mean[epoch - 1]) : "";
    });
  };
  svg.addEventListener("pointermove", (event) => {
    const epoch = Math.min(Math.max(Math.round(scale.at(event.offsetX)), 1), scale.epochs);
    svg.querySelector(".at")?.remove();
    make(svg, "line", { class: "at", x1: scale.x(epoch), x2: scale.x(epoch), y1: scale.top, y2: scale.foot });
    read(epoch);
  });
  svg.addEventListener("pointerleave", () => {
    svg.querySelector(".at")?.remove();
    read(scale.epochs);
  });
  chooser.addEventListener("change", () => { view = views[chooser.value]; draw(); });
  let drawn = 0;
  new ResizeObserver(() => { if (plot.clientWidth !== drawn) { drawn = plot.clientWidth; draw(); } }).observe(plot);
}
