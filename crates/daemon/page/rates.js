// What nodes have done so far, turned into rates per second.

const COUNTS = ["contributions", "results", "repeats", "sent_again", "dropped", "payload_received_bytes", "payload_sent_bytes"];

export class Rates {
  #before = null;
  #now = null;

  take(counts) {
    // A manager that was started anew counts its time from the beginning.
    this.#before = this.#now && counts.at_ms > this.#now.at_ms ? this.#now : null;
    this.#now = counts;
  }

  // The rates of a node, by count; null while they are not known.
  of(node) {
    const [before, now] = [this.#before?.nodes[node], this.#now?.nodes[node]];
    if (!before || !now) return null;
    const seconds = (this.#now.at_ms - this.#before.at_ms) / 1000;
    // Smaller than before: another process has taken the node's place.
    return Object.fromEntries(COUNTS.map((name) => [name, Math.max(0, now[name] - before[name]) / seconds]));
  }

  // The sums over `nodes`.
  total(nodes) {
    const known = nodes.map((node) => this.of(node)).filter((rates) => rates);
    return Object.fromEntries(COUNTS.map((name) => [name, known.reduce((sum, rates) => sum + rates[name], 0)]));
  }
}

export const losses = (rates) => rates.sent_again + rates.dropped;

const scaled = (value, units, step) => {
  let power = 0;
  while (value >= step && power < units.length - 1) [value, power] = [value / step, power + 1];
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${units[power]}`;
};

export const count = (value) => scaled(value, ["", " k", " M", " G"], 1000);
export const bytes = (value) => scaled(value, [" B", " KiB", " MiB", " GiB"], 1024);
