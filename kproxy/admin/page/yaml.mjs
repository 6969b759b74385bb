// Rules as YAML, for people: a rule's own keys stand one below the other, what is inside of them in one line.

import { inQuotes } from "./printable.mjs";

const PLAIN = /^[A-Za-z_/*][\w /*.@()+-]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"]);

// Return text as a value of YAML: as it is where it can be nothing else, else in quotes.
export function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  const plain = PLAIN.test(value) && !WORDS.has(value.toLowerCase()) && value.trim() === value && !value.startsWith("*");
  return plain ? value : inQuotes(JSON.stringify(value));
}

// Return a value in one line.
export function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value).map(([name, inner]) => `${scalar(name)}: ${flow(inner)}`).join(", ")}}`;
  }
  return scalar(value);
}

// Return the document with these rules.
export function document_of(rules) {
  if (!rules.length) return "rules: []\n";
  const lines = ["rules:"];
  for (const rule of rules) {
    Object.entries(rule).forEach(([name, value], index) => {
      lines.push(`${index ? "    " : "  - "}${scalar(name)}: ${flow(value)}`);
    });
  }
  return `${lines.join("\n")}\n`;
}

// Return a value as Python writes it.
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, inner]) => `${python(name)}: ${python(inner)}`).join(", ")}}`;
  }
  return typeof value === "string" ? inQuotes(JSON.stringify(value)) : String(value);
}

// Return a line that puts a rule into force in a test of pytest.
export function injection(rule) {
  const { name, kind, ...rest } = rule;
  const given = { name, ...rest };
  const words = Object.entries(given).filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key === "not" ? "not_" : key}=${python(value)}`);
  return `kproxy.inject(${[python(kind), ...words].join(", ")})`;
}
