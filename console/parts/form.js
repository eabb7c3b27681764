// Forms: single fields, and whole forms from a schema of the OpenAPI document.
import { h } from '../dom.js';
import { read, write } from '../read.js';

let nextId = 1;

export function field(label, control, hint) {
  control.id ||= `field-${nextId++}`;
  const hintId = hint && `${control.id}-hint`;
  if (hintId) control.setAttribute('aria-describedby', hintId);
  return h('div.field', null, h('label', { for: control.id }, label), control, hint && h('span.hint', { id: hintId }, hint));
}

export const textInput = (properties = {}) => h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', ...properties });
export const jsonInput = (properties = {}) => h('textarea.json-input', { rows: 4, autocomplete: 'off', spellcheck: 'false', ...properties });
export const choice = (values, chosen, onChange, properties = {}) => h('select', { ...properties, on: { change: (event) => onChange(event.target.value) } },
  values.map(([value, label]) => h('option', { value, selected: value === chosen }, label)));

/** The text as JSON on one line, with numbers as they were typed; throws if it is not JSON. */
export function textData(text, name = 'The data') {
  try {
    return write(read(text, true));
  } catch (error) {
    throw Object.assign(error, { kind: 'typed', message: `${name} is ${error.message}.` });
  }
}

const typesOf = (schema) => [schema.type ?? []].flat().filter((type) => type !== 'null');

function resolve(schema, document) {
  if (!schema.$ref) return schema;
  return schema.$ref.replace('#/', '').split('/').reduce((place, step) => place?.[step], document) ?? {};
}

function controlOf(schema, required) {
  const types = typesOf(schema);
  const values = schema.enum?.filter((value) => typeof value === 'string' && value);
  if (values) return choice([['', ''], ...values.map((value) => [value, value])], '', () => {});
  if (types.length === 1 && types[0] === 'boolean') return h('select', null, ['', 'true', 'false'].map((value) => h('option', { value }, value)));
  if (types.length === 1 && types[0] === 'string') return textInput({ required: required && schema.minLength > 0, maxlength: schema.maxLength });
  if (types.every((type) => type === 'integer' || type === 'number') && types.length) return textInput({ inputmode: 'numeric' });
  return jsonInput({ rows: 2 });
}

const isText = (schema) => Boolean(schema.enum) || (typesOf(schema).length === 1 && typesOf(schema)[0] === 'string');

/** A form with all fields of `schema`; the example fills or hints. `body()` is the JSON text of fields that are not empty, or throws. */
export function schemaForm(schema, document, isFilled, onInput) {
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {}).sort((one, other) => required.has(other) - required.has(one));
  const example = schema.examples?.[0] ?? {};
  const fields = names.map((name) => {
    const inner = resolve(schema.properties[name], document);
    const control = controlOf(inner, required.has(name));
    const text = isText(inner);
    if (name in example) control[isFilled ? 'value' : 'placeholder'] = text ? example[name] : JSON.stringify(example[name]);
    return { name, control, text, root: field(required.has(name) ? `${name} (required)` : name, control, inner.description) };
  });
  const root = h('div.schema-form', { on: { input: onInput } }, fields.map((one) => one.root));
  return {
    root,
    body() {
      const sent = fields.filter(({ name, control, text }) => control.value !== '' || (text && required.has(name)));
      return `{${sent.map(({ name, control: { value }, text }) => `${JSON.stringify(name)}:${text ? JSON.stringify(value) : textData(value, name)}`).join(',')}}`;
    },
    invalid(name) { for (const one of fields) one.control.setAttribute('aria-invalid', String(one.name === name)); },
  };
}

const scopesOf = (keys) => [...new Set(keys.map(({ key }) => /^registry\.scopes\[([^\]]+)\]/.exec(key)?.[1]).filter(Boolean))];

/** The choice of a scope of the registry above a page; answers the chosen one, or '' where one must be chosen first. */
export function needsScope(root, context) {
  const { scope = '' } = context.params;
  const show = (chosen) => context.go(context.name, { scope: chosen });
  const input = textInput({ value: scope, list: 'scopes', required: true });
  const list = h('datalist', { id: 'scopes' });
  root.append(h('form.inline-form', { on: { submit: (event) => {
    event.preventDefault();
    show(input.value.trim());
  } } }, field('Scope', input), list, h('button', { type: 'submit' }, 'Show')));
  if (!scope) root.append(h('p', null, 'Choose a scope. The key registry.scopes lists them.'));
  context.ask('configuration').then(({ keys }) => {
    const names = scopesOf(keys);
    list.append(...names.map((name) => h('option', { value: name })));
    if (!scope && names.length === 1) show(names[0]);
  }, () => {});
  return scope;
}
