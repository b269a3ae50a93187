// Lays a graph out beside the page, which stays usable meanwhile.

import { Graph, layout } from "./dagre.esm.js";

const MANY = 80;
const GAP = { x: 60, y: 50 };

self.addEventListener("message", ({ data }) => {
  self.postMessage({ number: data.number, ...(data.isChain ? chain(data) : graph(data)) });
});

function graph({ boxes, edges }) {
  const drawing = new Graph();
  // The network simplex draws better, and takes seconds where there are many boxes.
  drawing.setGraph({ rankdir: "LR", nodesep: 22, ranksep: 60, ranker: boxes.length > MANY ? "longest-path" : "network-simplex" });
  drawing.setDefaultEdgeLabel(() => ({}));
  // By number: dagre keeps what it knows in plain objects, where a region named `constructor` is there already.
  const numbers = new Map(boxes.map(({ id }, at) => [id, `${at}`]));
  boxes.forEach(({ width, height }, at) => drawing.setNode(`${at}`, { width, height }));
  for (const { producer, consumer } of edges) drawing.setEdge(numbers.get(producer), numbers.get(consumer));
  layout(drawing);
  const places = boxes.map(({ id }, at) => {
    const { x, y, width, height } = drawing.node(`${at}`);
    return { id, x: x - width / 2, y: y - height / 2, width, height };
  });
  const lines = edges.map(({ producer, consumer }) => drawing.edge(numbers.get(producer), numbers.get(consumer)).points);
  const { width, height } = drawing.graph();
  return { places, lines, width, height };
}

// Boxes that follow each other, in as many rows as can be read best in a room of this aspect: one row would be tiny.
function chain({ boxes, aspect }) {
  const wide = Math.max(...boxes.map((box) => box.width));
  const high = Math.max(...boxes.map((box) => box.height));
  const [stepX, stepY] = [wide + GAP.x, high + GAP.y];
  const columns = Math.min(boxes.length, Math.max(1, Math.round(Math.sqrt((boxes.length * aspect * stepY) / stepX))));
  const places = boxes.map(({ id }, at) => ({ id, x: (at % columns) * stepX, y: Math.floor(at / columns) * stepY, width: wide, height: high }));
  const lines = places.slice(1).map((to, at) => {
    const from = places[at];
    const [out, into] = [{ x: from.x + wide, y: from.y + high / 2 }, { x: to.x, y: to.y + high / 2 }];
    if (from.y === to.y) return [out, into];
    const between = to.y - GAP.y / 2; // from the end of a row to the beginning of the next one
    return [{ x: from.x + wide / 2, y: from.y + high }, { x: from.x + wide / 2, y: between }, { x: to.x + wide / 2, y: between }, { x: to.x + wide / 2, y: to.y }];
  });
  return { places, lines, width: columns * stepX - GAP.x, height: Math.ceil(boxes.length / columns) * stepY - GAP.y };
}
