// The colours are readable in light and dark mode, also in browsers that are some years old.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const css = readFileSync(new URL('../style.css', import.meta.url), 'utf8');
const [, light] = css.match(/^:root \{([^}]*)\}/m);
const [, dark] = css.match(/@media \(prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}/);
const colors = (block) => Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, color]) => [name, color]));

/** The contrast ratio of two colours (WCAG 2.2). */
function contrast(one, other) {
  const luminance = (color) => [1, 3, 5]
    .map((at) => parseInt(color.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

test('no colour needs a function that browsers of 2023 do not know', () => {
  assert.doesNotMatch(css, /light-dark\(/);
  assert.deepEqual(Object.keys(colors(dark)), Object.keys(colors(light)));
});

for (const [name, block] of [['light', light], ['dark', dark]]) {
  test(`text and rings of focus can be seen, ${name}`, () => {
    const { paper, card, ink, soft, pitch, bad, ring, 'pitch-deep': deep } = colors(block);
    for (const ground of [paper, card]) {
      for (const text of [ink, soft, bad]) assert.ok(contrast(text, ground) >= 4.5, `${text} on ${ground}: ${contrast(text, ground)}`);
      assert.ok(contrast(ring, ground) >= 3, `${ring} on ${ground}: ${contrast(ring, ground)}`);
    }
    for (const ground of [pitch, deep]) assert.ok(contrast('#ffffff', ground) >= 4.5, ground);
  });
}
