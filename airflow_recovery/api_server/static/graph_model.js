// Regions to boxes: the subtasks of one region are one box, "12 x"; edges are those between boxes. Pure.

import { ATTENTION } from "./words.js";

const MAX_VERTICES = 4;
const MAX_LAYERS = 16;
const MOST_AROUND = 40; // boxes of a part of the graph: so many can be read
export const MANY = 150; // boxes, above which a graph is not drawn as a whole unless somebody asks for it

const WORST_FIRST = ["failed", "lost", "running", "waiting", "released", "skipped", "run", "kept"];

export function boxesOf(run) {
  const boxes = new Map();
  const boxOf = new Map();
  const boxFor = (family, name) => {
    const id = family ? `${family}[]` : name;
    if (!boxes.has(id)) boxes.set(id, { id, label: family ?? name, isFamily: Boolean(family), regions: [], folded: [] });
    if (family) boxOf.set(family, id); // edges of a large run are told without the subtasks' keys
    return boxes.get(id);
  };
  for (const region of run.regions) {
    const { name, subtask } = region.story;
    const box = boxFor(subtask?.[0], name);
    box.regions.push(region);
    boxOf.set(name, box.id);
  }
  for (const folded of run.subtasks) boxFor(folded.of).folded.push(folded);
  for (const box of boxes.values()) summarise(box);
  const edges = new Map();
  for (const edge of run.edges) {
    const ends = [boxOf.get(edge.producer), boxOf.get(edge.consumer)];
    const key = JSON.stringify(ends);
    if (ends[0] !== ends[1] && !edges.has(key)) {
      edges.set(key, { producer: ends[0], consumer: ends[1], type: edge.type, results: edge.results });
    }
  }
  return { boxes: [...boxes.values()], edges: [...edges.values()], boxOf };
}

function summarise(box) {
  const counts = new Map();
  const add = (status, n) => counts.set(status, (counts.get(status) ?? 0) + n);
  for (const region of box.regions) add(region.status, 1);
  for (const folded of box.folded) add(folded.status, folded.regions);
  box.counts = counts;
  box.size = [...counts.values()].reduce((sum, n) => sum + n, 0);
  box.status = WORST_FIRST.find((status) => counts.has(status));
  const vertices = [...new Set([...box.regions.map((region) => region.story), ...box.folded].flatMap((member) => member.vertices))];
  box.vertices = vertices.slice(0, MAX_VERTICES);
  if (vertices.length > MAX_VERTICES) box.vertices.push(`and ${vertices.length - MAX_VERTICES} more`);
}

// Levels of detail. Each is a graph small enough to read; "all" is everything, however long the drawing takes.

export const LEVELS = {
  all: "all regions",
  overview: "overview by layer",
  attention: "what needs attention, and its neighbours",
  around: "around the selected region",
};

export function level(graph, name, selected) {
  if (name === "overview") return overview(graph);
  if (name === "attention") {
    const wanted = graph.boxes.filter((box) => ATTENTION.some((state) => box.counts.has(state)));
    if (wanted.length) return around(graph, new Set(wanted.map((box) => box.id)), 1);
    return graph.boxes.length > MANY ? overview(graph) : graph;
  }
  if (name === "around" && selected) return around(graph, new Set([selected]), 2);
  return graph;
}

function around(graph, wanted, steps) {
  let shown = new Set(wanted);
  for (let step = 0; step < steps; step += 1) {
    const further = new Set(shown);
    for (const { producer, consumer } of graph.edges) {
      if (shown.has(producer)) further.add(consumer);
      if (shown.has(consumer)) further.add(producer);
    }
    shown = further;
  }
  // A hub may have a thousand neighbours: those that were asked for come first, the worst of them before the others.
  const rank = (box) => (wanted.has(box.id) ? 0 : WORST_FIRST.length) + WORST_FIRST.indexOf(box.status);
  const ordered = graph.boxes.filter((box) => shown.has(box.id)).sort((a, b) => rank(a) - rank(b));
  const kept = new Set(ordered.slice(0, MOST_AROUND).map((box) => box.id));
  return {
    ...graph,
    boxes: graph.boxes.filter((box) => kept.has(box.id)),
    edges: graph.edges.filter((edge) => kept.has(edge.producer) && kept.has(edge.consumer)),
    left: shown.size - kept.size,
  };
}

// One box for each layer of the graph, or for several that follow each other where there are many.
function overview(graph) {
  const layer = new Map();
  for (const { id } of graph.boxes) layer.set(id, 0);
  // The edges come in the topological order of their consumers.
  for (const { producer, consumer } of graph.edges) layer.set(consumer, Math.max(layer.get(consumer), layer.get(producer) + 1));
  const deepest = Math.max(0, ...layer.values());
  const together = Math.ceil((deepest + 1) / MAX_LAYERS);
  const boxes = [];
  for (const box of graph.boxes) {
    const at = Math.floor(layer.get(box.id) / together);
    const first = at * together + 1;
    const last = Math.min(first + together - 1, deepest + 1);
    boxes[at] ??= { id: `layer ${at}`, label: first === last ? `layer ${first}` : `layers ${first} to ${last}`, isLayer: true, members: [], regions: [], folded: [] };
    boxes[at].members.push(box);
    boxes[at].regions.push(...box.regions);
    boxes[at].folded.push(...box.folded);
  }
  for (const layerBox of boxes) {
    summarise(layerBox);
    layerBox.vertices = layerBox.members.slice(0, 3).map((box) => title(box));
    if (layerBox.members.length > 3) layerBox.vertices.push(`and ${layerBox.members.length - 3} more`);
  }
  const edges = boxes.slice(1).map((layerBox, at) => ({ producer: boxes[at].id, consumer: layerBox.id, type: "BLOCKING", results: [] }));
  return { ...graph, boxes, edges, isChain: true };
}

export function sizeOf(box) {
  const texts = [title(box), stateLine(box), ...box.vertices.map((vertex) => `  ${vertex}`)];
  const widest = Math.max(...texts.map((text) => Math.min(text.length, 34)));
  return { width: Math.max(120, widest * 7.6 + 24), height: 68 + box.vertices.length * 17 };
}

export function title(box) {
  if (box.isLayer) return `${box.label}: ${box.size} ×`;
  return box.isFamily ? `${box.label}  ${box.size} ×` : box.label;
}

export function stateLine(box) {
  return [...box.counts].map(([state, n]) => (box.size > 1 ? `${n} ${state}` : state)).join(", ");
}

// Equal for two runs of which one drawing serves both.
export function shapeOf(graph) {
  return JSON.stringify([graph.boxes.map((box) => [box.id, box.size, box.vertices, stateLine(box).length > 12]), graph.edges.map((e) => [e.producer, e.consumer])]);
}
