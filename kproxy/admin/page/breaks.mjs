// What is out of order in a row of exchanges: sequence numbers, offsets, epochs.

// Return words by id. `list`: [id, event of the audit] in the order of time.
export function breaks(list) {
  const found = new Map();
  const say = (id, text) => {
    if (!found.has(id)) found.set(id, []);
    found.get(id).push(text);
  };
  const sequences = new Map(), epochs = new Map(), offsets = new Map(), generations = new Map();
  for (const [id, event] of list) {
    if (event.generation !== undefined && event.generation !== null && event.group) {
      step(generations, `${event.group} ${event.member ?? ""}`, event.generation, (was, now) => say(id, `generation ${was} → ${now}`));
    }
    for (const topic of event.topics ?? []) {
      for (const part of topic.partitions ?? []) {
        const place = `${topic.topic ?? topic.topic_id}[${part.partition}]`;
        const producer = part.producer_id ?? event.producer_id;
        const epoch = part.producer_epoch ?? event.producer_epoch;
        if (producer >= 0 && epoch !== undefined && epoch !== null) step(epochs, String(producer), epoch, (was, now) => say(id, `epoch ${was} → ${now}`));
        if (event.api === "Produce" && producer >= 0 && part.base_sequence >= 0) sequence(sequences, `${producer} ${epoch} ${place}`, part, (text) => say(id, text));
        if (event.api === "Fetch" && part.fetch_offset >= 0) fetched(offsets, `${event.connection} ${place}`, part, place, (text) => say(id, text));
      }
    }
  }
  return found;
}

function step(known, key, now, tell) {
  const was = known.get(key);
  if (was !== undefined && was !== now) tell(was, now);
  known.set(key, now);
}

// Compare a batch's first sequence number with the one that was due.
function sequence(known, key, part, tell) {
  const was = known.get(key);
  const now = part.base_sequence;
  if (was && now === was.first) tell(`sequence ${now} twice`);
  else if (was && now < was.next) tell(`sequence ${now}, back from ${was.next}`);
  else if (was && now > was.next) tell(`sequence ${was.next} to ${now - 1} missing`);
  known.set(key, { first: now, next: now + (part.records ?? part.count ?? 1) });
}

// Compare the offset that is fetched with the one that the answer before ended at.
function fetched(known, key, part, place, tell) {
  const due = known.get(key);
  if (due !== undefined && part.fetch_offset < due) tell(`${place} back to ${part.fetch_offset} from ${due}`);
  else if (due !== undefined && part.fetch_offset > due) tell(`${place} on to ${part.fetch_offset} from ${due}`);
  if (part.last_offset >= 0) known.set(key, part.last_offset + 1);
  else known.set(key, part.fetch_offset);
}
