// Makes elements. Text becomes text nodes and never markup: names and errors are other people's.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

export function table(caption, columns, rows) {
  const head = columns.map((column) => el("th", { scope: "col", class: kind(column) }, column.label));
  const body = rows.map((row) =>
    el("tr", {}, ...row.map((cell, at) => el("td", { class: kind(columns[at]) }, cell ?? ""))),
  );
  return el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
}

function kind({ number, short }) {
  return number ? "number" : short ? "short" : null;
}
