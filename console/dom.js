// The only module that creates elements: every text becomes a text node without invisible characters.
import { visible } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'open', 'tabIndex']);
// Attributes that users see are escaped like text; an attribute that is sent back (value) is not.
const SHOWN = new Set(['title', 'aria-label', 'placeholder', 'aria-valuetext']);

const maker = (create) => (selector, properties, ...children) => {
  const [tag, ...classes] = selector.split('.');
  const element = create(tag);
  if (classes.length) element.setAttribute('class', classes.join(' '));
  for (const [name, value] of Object.entries(properties ?? {})) assign(element, name, value);
  append(element, children);
  return element;
};

/** Makes an element: `h('a.row', { href, on: { click } }, 'text', node, [more])`. */
export const h = maker((tag) => document.createElement(tag));
export const svg = maker((tag) => document.createElementNS(SVG, tag));

function assign(element, name, value) {
  if (value === null || value === undefined || value === false || (name === 'href' && !safeAddress(value))) return;
  if (name === 'on') Object.entries(value).forEach(([event, listener]) => element.addEventListener(event, listener));
  else if (name === 'css') Object.entries(value).forEach(([property, text]) => element.style.setProperty(property, text));
  else if (name === 'class') element.classList.add(...value.split(' ').filter(Boolean));
  else if (PROPERTIES.has(name)) element[name] = value;
  else if (/^on|^style$|^srcdoc$/i.test(name)) throw new Error(`${name} is not set as an attribute`);
  else element.setAttribute(name, value === true ? '' : SHOWN.has(name) ? visible(value) : value);
}

/** Allows own addresses, http(s): and blob: only, because some addresses come from the server's data. */
const safeAddress = (address) => /^(\/(?!\/)|#|\?|https?:\/\/|blob:)/.test(address);

function append(element, children) {
  const real = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...real.map((child) => (child instanceof Node ? child : visible(child))));
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Gives an element these children. Children that stay in order are not taken out, so that they keep the focus. */
export function arrange(element, children) {
  const wanted = new Set(children);
  for (const child of [...element.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, index) => child === element.children[index] || element.insertBefore(child, element.children[index] ?? null));
}

/** Sets a text only if it differs, so that a selection in it stays; returns whether it did. */
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent === shown) return false;
  element.textContent = shown;
  return true;
}

export const button = (label, onClick, properties = {}) =>
  h('button', { type: 'button', ...properties, on: { click: onClick, ...properties.on } }, label);
