// Send the request of an exchange again, through its listener. A request that changes something is sent only after its
// API was typed.

import { send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { html } from "./dom.mjs";
import { count, ms } from "./format.mjs";
import { command, say } from "./registry.mjs";
import { select, state } from "./state.mjs";

const under = new Set(); // ids of exchanges whose requests are being sent again

// Send it; `confirm`: its API, once the user has typed it.
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

// Name what the request changes, and have its API typed.
function ask(row, why) {
  const what = row.about ? html` Subject: <b>${row.about}</b>${row.records > 0 ? `, with ${count(row.records, "record")}` : ""}.` : "";
  askFirst(`Send exchange ${row.id} again?`, html`${why.split(":")[0]}.${what} It goes to the cluster through listener ${row.listener ?? "of its client"},
    under the rules in force now.`, [[`Send ${row.api} again`, () => sendAgain(row, row.api)]], { word: row.api, label: `Type ${row.api} to send it` });
}

command({ key: "r", title: "Send again…", help: "send its request again", group: "exchange", view: "exchanges", place: "exchange",
  order: 30, writes: true, when: ({ row }) => row !== null && state.source === "live", act: ({ row }) => sendAgain(row) });
