// Texts for the clipboard.

import { say } from "./registry.mjs";

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("copied");
  } catch {
    say("the browser does not allow to copy here", true);
  }
}
