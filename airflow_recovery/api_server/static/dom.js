// Makes elements. Text becomes text nodes and never markup: names and errors are other people's.

// Characters that show nothing, or that turn the text behind them around. Line ends and tabs stay.
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

// Text of others as a page shows it: each character that shows nothing as its code, such as \u{202e}.
export function shown(text) {
  return text.replace(UNSEEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

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
    else element.setAttribute(name, value === true ? "" : isRead(name) ? shown(String(value)) : String(value));
  }
  const present = children.filter((child) => child !== null && child !== undefined);
  element.append(...present.map((child) => (child instanceof Node ? child : shown(String(child)))));
  return element;
}

function isRead(name) {
  return name === "title" || name.startsWith("aria-");
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
