// Send the request of an exchange again, by the listener that it came by. What changes something is asked back by name.

import { send } from "./api.mjs";
import { html } from "./dom.mjs";
import { ms } from "./format.mjs";
import { closeDialog, command, complain, openDialog, say } from "./registry.mjs";
import { select, state } from "./state.mjs";

const under = new Set(); // ids of exchanges whose requests are being sent again

// Send it; `confirm`: its API, once whoever looks has said that this is meant.
async function sendAgain(row, confirm = null) {
  if (under.has(row.id)) return;
  under.add(row.id);
  say(`${row.api} of exchange ${row.id} is being sent again …`);
  try {
    tell(row, await send("POST", `/api/exchanges/${encodeURIComponent(row.id)}/send`, confirm === null ? {} : { confirm }));
  } catch (error) {
    if (error.code !== "confirm_first" || confirm !== null) throw error;
    say("");
    ask(row, error.message);
  } finally {
    under.delete(row.id);
  }
}

// Say what became of it, and show the new exchange.
function tell(row, { id, outcome, reason, notes, seconds }) {
  const words = outcome === "answered" ? `answered in ${ms(seconds * 1000)}` : outcome === "no_answer_due" ? "no answer was due" : reason || "there was no answer";
  say([`${row.api} of exchange ${row.id} was sent again: ${words}`, ...notes].join(" · "), outcome === "unanswered");
  if (id === null) return;
  state.follow = false;
  select(id);
}

function ask(row, why) {
  const go = async () => {
    closeDialog();
    await sendAgain(row, row.api).catch(complain);
  };
  openDialog(() => html`<p class="text">${why.split(":")[0]}. It goes by the listener that it came by, and the rules of now act on it.</p>
    <p class="foot"><button class="warns" autofocus onClick=${go}>Send ${row.api} again</button>
    <button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title: `Send exchange ${row.id} again?` });
}

command({ key: "r", title: "Send again…", help: "send its request again", group: "exchange", view: "exchanges", place: "exchange",
  order: 30, writes: true, when: ({ row }) => row !== null && state.source === "live", act: ({ row }) => sendAgain(row) });
