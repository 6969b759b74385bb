// Marks of rows in four colours, which stay until they are removed.

import { changed } from "./dom.mjs";
import { command } from "./registry.mjs";

const COLOURS = 4;
const MOST = 1000;

export const marks = new Map(); // number of a colour by the id of a row

command({ key: "M", title: "Mark", group: "exchange", help: "mark the row, in the next of four colours, or no more",
  when: ({ row }) => row !== null, act: ({ row }) => {
    const next = (marks.get(row.id) ?? 0) + 1;
    marks.delete(row.id);
    if (next <= COLOURS && marks.size < MOST) marks.set(row.id, next);
    changed();
  } });
