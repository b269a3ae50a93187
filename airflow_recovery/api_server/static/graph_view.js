// Draws boxes and edges, and lets people move in them with mouse, wheel and keyboard.

import { el, svg } from "./dom.js";
import { shapeOf, sizeOf, stateLine, title } from "./graph_model.js";
import { ACTIONS, STATES } from "./words.js";

const FAR = 0.45; // below this scale words can't be read: signs are drawn
const MARGIN = 20;
const KEYS = { ArrowLeft: "before", ArrowRight: "after", ArrowUp: "above", ArrowDown: "below" };

export class GraphView {
  constructor(place, onSelect) {
    this.place = place;
    this.onSelect = onSelect;
    this.worker = new Worker(new URL("layout_worker.js", import.meta.url), { type: "module" });
    this.worker.addEventListener("message", ({ data }) => data.number === this.asked && this.draw(data));
    this.worker.addEventListener("error", (event) => {
      this.note.textContent = `The graph can't be laid out (${event.message || "its script was not loaded"}). The list of regions has everything.`;
    });
    this.asked = 0;
    this.elements = new Map();
    this.edges = [];
    this.scale = 1;
    this.x = this.y = 0;
    this.note = el("p", { class: "note quiet", role: "status" });
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
    arrow.append(svg("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
    this.world = svg("g");
    this.svg = svg("svg", { role: "group", "aria-label": "Regions, with arrows from who writes to who reads" }, svg("defs", {}, arrow), this.world);
    place.append(this.svg, this.note);
    // Beside the details there is less room: what nobody has moved is fitted into it.
    new ResizeObserver(() => this.size && !this.isMoved && this.fit()).observe(place);
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.drag(event));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  // Lays out anew only where the shape has changed; else the boxes that are there change their look.
  show(graph, plan, selected) {
    this.graph = graph;
    this.plan = plan;
    this.selected = selected;
    const shape = shapeOf(graph);
    if (shape === this.shape) {
      this.restyle();
      return;
    }
    this.shape = shape;
    this.asked += 1;
    this.note.textContent = `Laying out ${graph.boxes.length} boxes…`;
    const boxes = graph.boxes.map((box) => ({ id: box.id, ...sizeOf(box) }));
    const edges = graph.edges.map(({ producer, consumer }) => ({ producer, consumer }));
    const { clientWidth, clientHeight } = this.svg;
    this.worker.postMessage({ number: this.asked, boxes, edges, isChain: graph.isChain, aspect: clientWidth / clientHeight });
  }

  draw({ places, lines, width, height }) {
    const focused = document.activeElement?.dataset?.box;
    this.size = { width, height };
    this.places = new Map(places.map((place) => [place.id, place]));
    this.elements.clear();
    const boxes = new Map(this.graph.boxes.map((box) => [box.id, box]));
    const edges = this.graph.edges.map((edge, at) => this.edge(edge, lines[at]));
    const drawn = places.map((place) => this.box(boxes.get(place.id), place));
    this.world.replaceChildren(...edges, ...drawn);
    const left = this.graph.left ? `; ${this.graph.left} more are not shown` : "";
    this.note.textContent = `${places.length} boxes${left}. Arrow keys move, Enter opens, + and − zoom, 0 fits.`;
    this.restyle();
    this.fit();
    performance.mark("recovery:drawn"); // what the benchmark of the first paint measures
    if (focused && this.elements.has(focused)) this.focus(focused);
  }

  edge({ type, results }, points) {
    const path = points.map(({ x, y }, at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const kind = { CACHED: "cached", CACHED_MEMORY_ONLY: "cached", BLOCKING_PERSISTENT: "persistent" }[type] ?? "blocking";
    return svg("path", { d: path, class: `edge ${kind}`, "marker-end": "url(#arrow)" }, svg("title", {}, `${type}: ${results.join(", ")}`));
  }

  box(box, { x, y, width, height }) {
    const words = [svg("text", { x: 10, y: 20, class: "name" }, short(title(box), 34))];
    words.push(svg("text", { x: 10, y: 38, class: "states" }));
    box.vertices.forEach((vertex, at) => words.push(svg("text", { x: 18, y: 56 + at * 17, class: "small" }, short(vertex, 32))));
    words.push(svg("text", { x: width - 8, y: height - 6, class: "planned", "text-anchor": "end" }));
    words.push(svg("text", { x: width / 2, y: height / 2 + 10, class: "sign", "text-anchor": "middle" }));
    // The box's label says all of it, whatever the zoom shows (`name`). Blanks part the words for whoever reads the text.
    for (const word of words) word.setAttribute("aria-hidden", "true");
    const outer = svg("rect", { class: "outer", width, height, rx: 6 });
    const inner = box.isFamily || box.isLayer ? [svg("rect", { x: 4, y: 4, width: width - 8, height: height - 8, rx: 4, class: "inner" })] : [];
    const group = svg("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button", tabindex: -1, "data-box": box.id }, outer, ...inner, ...words.flatMap((word) => [word, " "]));
    group.addEventListener("click", () => this.moved || this.onSelect(box.id));
    this.elements.set(box.id, group);
    return group;
  }

  restyle() {
    const first = this.graph.boxes[0]?.id;
    for (const box of this.graph.boxes) {
      const group = this.elements.get(box.id);
      if (!group) continue;
      const sign = STATES[box.status]?.sign ?? "";
      const planned = this.planned(box);
      group.setAttribute("class", `box is-${box.status}${box.id === this.selected ? " is-selected" : ""}${this.plan && !planned ? " is-faint" : ""}`);
      group.setAttribute("tabindex", box.id === (this.elements.has(this.selected) ? this.selected : first) ? 0 : -1);
      group.querySelector(".states").textContent = short(`${sign} ${stateLine(box)}`, 36);
      group.querySelector(".sign").textContent = sign;
      group.querySelector(".planned").textContent = planned;
      group.setAttribute("aria-label", this.name(box, group));
    }
  }

  // The words that can be seen, in their order (who speaks to the page says what he sees); what was cut comes after them.
  name(box, group) {
    const seen = [...group.querySelectorAll(".name, .states, .small, .planned")].map((element) => element.textContent).filter(Boolean);
    return [...seen, ...(seen.some((text) => text.endsWith("…")) ? [title(box), stateLine(box), ...box.vertices] : [])].join(", ");
  }

  planned(box) {
    if (!this.plan) return "";
    const counts = new Map();
    for (const name of this.namesOf(box)) {
      const action = this.plan.get(name);
      if (action && !["keep", "release"].includes(action)) counts.set(action, (counts.get(action) ?? 0) + 1);
    }
    return [...counts].map(([action, n]) => (box.size > 1 ? `${n} ${ACTIONS[action]}` : ACTIONS[action])).join(", ");
  }

  // Of the regions that are told of as one, the plan has the names.
  namesOf(box) {
    const families = new Set(box.folded.map((folded) => folded.of));
    const folded = families.size ? [...this.plan.keys()].filter((name) => families.has(name.split("[", 1)[0])) : [];
    return new Set([...box.regions.map(({ story }) => story.name), ...folded]);
  }

  fit() {
    this.isMoved = false;
    const { clientWidth } = this.svg;
    const clientHeight = this.svg.clientHeight - this.note.offsetHeight; // which stands below
    const wide = clientWidth / (this.size.width + 2 * MARGIN);
    const high = clientHeight / (this.size.height + 2 * MARGIN);
    this.scale = Math.min(wide, high, 1.2) || 1;
    this.x = (clientWidth - this.size.width * this.scale) / 2;
    this.y = (clientHeight - this.size.height * this.scale) / 2;
    this.move();
  }

  zoom(factor, at = { x: this.svg.clientWidth / 2, y: this.svg.clientHeight / 2 }) {
    this.isMoved = true;
    const scale = Math.min(4, Math.max(0.02, this.scale * factor));
    this.x = at.x - ((at.x - this.x) * scale) / this.scale;
    this.y = at.y - ((at.y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.move();
  }

  move() {
    this.world.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    this.svg.setAttribute("class", this.scale < FAR ? "far" : "near");
  }

  // Into the middle, large enough to be read.
  focus(id) {
    const place = this.places?.get(id);
    const group = this.elements.get(id);
    if (!place || !group) return;
    this.isMoved = true;
    if (this.scale < FAR) this.scale = 0.8;
    this.x = this.svg.clientWidth / 2 - (place.x + place.width / 2) * this.scale;
    this.y = this.svg.clientHeight / 2 - (place.y + place.height / 2) * this.scale;
    this.move();
    for (const element of this.elements.values()) element.setAttribute("tabindex", -1);
    group.setAttribute("tabindex", 0);
    group.focus({ preventScroll: true });
  }

  wheel(event) {
    event.preventDefault();
    const { left, top } = this.svg.getBoundingClientRect();
    this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - left, y: event.clientY - top });
  }

  drag(event) {
    const start = { x: event.clientX - this.x, y: event.clientY - this.y, at: [event.clientX, event.clientY] };
    this.moved = false;
    const move = (now) => {
      if (Math.hypot(now.clientX - start.at[0], now.clientY - start.at[1]) > 4) this.moved = this.isMoved = true;
      [this.x, this.y] = [now.clientX - start.x, now.clientY - start.y];
      this.move();
    };
    const end = () => removeEventListener("pointermove", move);
    addEventListener("pointermove", move);
    addEventListener("pointerup", end, { once: true });
    addEventListener("pointercancel", end, { once: true });
  }

  key(event) {
    const id = event.target.dataset?.box;
    const zooms = { "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit() };
    if (zooms[event.key]) zooms[event.key]();
    else if (id && KEYS[event.key]) this.focus(this.neighbour(id, KEYS[event.key]));
    else if (id && (event.key === "Enter" || event.key === " ")) this.onSelect(id);
    else return;
    event.preventDefault();
  }

  neighbour(id, where) {
    if (where === "before") return this.graph.edges.find((edge) => edge.consumer === id)?.producer;
    if (where === "after") return this.graph.edges.find((edge) => edge.producer === id)?.consumer;
    const here = this.places.get(id);
    const column = [...this.places.values()].filter((place) => Math.abs(place.x + place.width / 2 - here.x - here.width / 2) < 40);
    column.sort((a, b) => a.y - b.y);
    return column[column.findIndex((place) => place.id === id) + (where === "below" ? 1 : -1)]?.id;
  }
}

function short(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
