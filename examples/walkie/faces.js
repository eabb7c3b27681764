// The faces of a room: the name that a client sends, its label, and a drawing of 24 × 24 in the colour of the text. Pure.

/** Each has lines, and some have filled parts. Without a prototype: the name of a face comes from outside. */
export const FACES = {
  __proto__: null,
  fox: { label: 'Fox', lines: 'M4 4l4.5 3.5h7L20 4v8.5L12 21l-8-8.5zM4 12.5l5 2.5 3 6 3-6 5-2.5M9 12.5h.01M15 12.5h.01', solid: 'M10.7 19h2.6L12 21z' },
  bear: {
    label: 'Bear',
    lines: 'M12 5.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15zM5 9.5A3 3 0 1 1 9 6.2M15 6.2a3 3 0 1 1 4 3.3M12 17v1M9 12.5h.01M15 12.5h.01',
    solid: 'M10.5 15.2h3L12 17z',
  },
  frog: {
    label: 'Frog',
    lines: 'M5.5 8.5A2.7 2.7 0 1 1 10 7h4a2.7 2.7 0 1 1 4.5 1.5C20.5 10 21 11.5 21 13.5c0 4-4 6.5-9 6.5s-9-2.5-9-6.5c0-2 .5-3.5 2.5-5z'
      + 'M7 14c2.5 2.5 7.5 2.5 10 0M7.7 7h.01M16.3 7h.01',
  },
  owl: {
    label: 'Owl',
    lines: 'M5 3.5L8 6h8l3-2.5V14a7 7 0 0 1-14 0zM9 8.3a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z'
      + 'M15 8.3a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4zM9 10.5h.01M15 10.5h.01M10 18l2 1 2-1',
    solid: 'M11 13.2h2L12 15z',
  },
  octopus: {
    label: 'Octopus',
    lines: 'M6 13V9a6 6 0 0 1 12 0v4c0 3 1 5 3 5.5M6 13c0 3-1 5-3 5.5M9.5 14c0 3.5-.7 5.5-2.5 6.5M14.5 14c0 3.5.7 5.5 2.5 6.5'
      + 'M12 14.5V21M10 9h.01M14 9h.01',
  },
  lion: {
    label: 'Lion',
    lines: 'M12 4.6A2.6 2.6 0 0 1 16.5 6.1A2.6 2.6 0 0 1 19.2 9.9A2.6 2.6 0 0 1 19.2 14.5A2.6 2.6 0 0 1 16.5 18.3'
      + 'A2.6 2.6 0 0 1 12 19.8A2.6 2.6 0 0 1 7.5 18.3A2.6 2.6 0 0 1 4.8 14.5A2.6 2.6 0 0 1 4.8 9.9A2.6 2.6 0 0 1 7.5 6.1A2.6 2.6 0 0 1 12 4.6z'
      + 'M12 7.2a5.2 5.2 0 1 0 0 10.4 5.2 5.2 0 0 0 0-10.4zM10 11.5h.01M14 11.5h.01M12 15v.5',
    solid: 'M10.7 13.3h2.6L12 15z',
  },
  panda: {
    label: 'Panda',
    lines: 'M12 5.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15zM10.3 17.5c1 .8 2.4.8 3.4 0',
    solid: 'M5 9.5A3 3 0 1 1 9 6.2zM15 6.2a3 3 0 1 1 4 3.3zM9.8 11c1 .6.3 3-1.3 3.3-1.2 0-1.5-1-1-1.9.5-1 1.5-1.8 2.3-1.4z'
      + 'M14.2 11c-1 .6-.3 3 1.3 3.3 1.2 0 1.5-1 1-1.9-.5-1-1.5-1.8-2.3-1.4zM11 15h2l-1 1.2z',
  },
  bee: {
    label: 'Bee',
    lines: 'M12 9.5c-4 0-8 1.8-8 5s4 5 8 5 7-2.5 8.5-5c-1.5-2.5-4.5-5-8.5-5zM10 9.7v9.6M14 9.8v9.4M20.5 14.5H22'
      + 'M10.5 9.5C8 8 7.5 4 9.5 3.5s3.5 3 3 6M13.5 9.5c0-3 2-5.5 3.8-4.7S18 9 16.5 10.5M5 11.5L3.5 9M6.8 14h.01',
  },
  terminal: { label: 'Terminal', lines: 'M3 5h18v14H3zM7 9l3 3-3 3M12.5 15H17' },
  somebody: { label: 'Face', lines: 'M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM8.5 14.5c1.5 2.2 5.5 2.2 7 0M9 10h.01M15 10h.01' },
};

/** Those that the page offers. */
export const CHOICE = ['fox', 'bear', 'frog', 'owl', 'octopus', 'lion', 'panda', 'bee'];
