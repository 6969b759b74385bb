// Text as it is shown: what traffic says may have characters that nobody sees.
//
// Some turn the direction of a line, so that what stands behind them is read in another order; others have no width, so
// that one name looks like another. They are shown as `\u202e`, as in a terminal (kproxy/base/terminal.py has the same set).

const UNSEEN = new RegExp("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891"
  + "\\u08e2\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufeff"
  + "\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\u{110bd}\\u{110cd}\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}"
  + "\\u{e0000}-\\u{e0fff}]", "gu");
const PLAIN = /^[\n\t -~]*$/;

const escaped = (found) => Array.from({ length: found.length },
  (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join("");

// Return the text with its unseen characters written as `\u202e`.
export function printable(text) {
  return PLAIN.test(text) ? text : text.replace(UNSEEN, escaped);
}

// Return the text with them as quotes of YAML and of Python have them: `\u202e`, or `\U000e0001`.
export function inQuotes(text) {
  if (PLAIN.test(text)) return text;
  return text.replace(UNSEEN, (found) => (found.length > 1 ? `\\U${found.codePointAt(0).toString(16).padStart(8, "0")}` : escaped(found)));
}

// Return the text with them as an expression of RE2 has them, `\x{202e}`.
export function inExpression(text) {
  return PLAIN.test(text) ? text : text.replace(UNSEEN, (found) => `\\x{${found.codePointAt(0).toString(16)}}`);
}
