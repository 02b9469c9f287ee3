// Listens to the manager, and shows what it says.

import { Fabric } from "/page/fabric.js";
import { Rates, bytes, count, losses } from "/page/rates.js";
import { Table } from "/page/table.js";
import { Tree } from "/page/tree.js";

const byId = (id) => document.getElementById(id);
const UNKNOWN = "–";

const rates = new Rates();
const tree = new Tree(byId("tree"));
let fabric = new Fabric({ nodes: [], jobs: [], groups: [] });
let chosen = null;

const rate = (title, name, text = count) => ({
  title, right: true,
  value: (row) => row.rates?.[name] ?? -1,
  text: (row) => (row.rates ? text(row.rates[name]) : UNKNOWN),
});

const nodes = new Table(byId("nodes"), [
  { title: "name", value: (row) => row.name, text: (row) => (row.isDraining ? `${row.name} (draining)` : row.name) },
  { title: "parent", value: (row) => row.parent ?? "", text: (row) => row.parent ?? UNKNOWN },
  { title: "operations", value: (row) => row.used / row.osos, show: showLoad },
  { title: "groups", right: true, value: (row) => row.groups },
  rate("contributions/s", "contributions"),
  rate("results/s", "results"),
  rate("in/s", "payload_received_bytes", bytes),
  rate("out/s", "payload_sent_bytes", bytes),
  rate("repeats/s", "repeats"),
  rate("sent again/s", "sent_again"),
  rate("dropped/s", "dropped"),
  { title: "address", value: (row) => row.address },
], (row) => row.number);

const groups = new Table(byId("groups"), [
  { title: "group", right: true, value: (row) => row.number },
  { title: "label", value: (row) => row.label },
  { title: "job", value: (row) => `${row.jobName} (${row.job})` },
  { title: "hosts", right: true, value: (row) => row.hosts },
  { title: "nodes", right: true, value: (row) => row.nodes.length },
  { title: "root", value: (row) => row.root },
  { title: "operations", right: true, value: (row) => row.osos },
  { title: "epoch", right: true, value: (row) => row.epoch },
  { title: "waits for", value: (row) => row.waiting?.waited_ms ?? -1, text: showLate },
], (row) => row.number, (row) => choose(chosen === row.number ? null : row.number));

const jobs = new Table(byId("jobs"), [
  { title: "job", right: true, value: (row) => row.job },
  { title: "name", value: (row) => row.name },
  { title: "tenant", value: (row) => row.tenant ?? "" },
  { title: "processes", right: true, value: (row) => row.processes },
  { title: "groups", right: true, value: (row) => row.groups },
], (row) => row.job);

function showLate(row) {
  if (!row.waiting) return "";
  const { hosts, nodes = [], waited_ms } = row.waiting;
  return `${[...hosts, ...nodes].join(", ")} (${Math.round(waited_ms / 1000)} s)`;
}

function showLoad(cell, row) {
  const meter = cell.querySelector("meter") ?? cell.appendChild(document.createElement("meter"));
  const text = cell.querySelector("span") ?? cell.appendChild(document.createElement("span"));
  [meter.max, meter.value] = [row.osos, row.used];
  text.textContent = ` ${row.used} of ${row.osos}`;
}

function choose(group) {
  chosen = group;
  showFabric();
  showRates();
}

function showLegend(group) {
  const legend = byId("legend");
  const item = (className, text) => {
    const span = document.createElement("span");
    const dot = document.createElement("i");
    dot.className = className;
    span.append(dot, text);
    return span;
  };
  legend.replaceChildren(item("idle", "free"), item("", "operations in use"), item("losing", "losses in the last second"));
  if (!group) return legend.append("click a group to see its tree");
  const all = document.createElement("button");
  all.textContent = `group ${group.number} “${group.label}” of ${group.jobName}: show all again`;
  all.addEventListener("click", () => choose(null));
  legend.append(all);
}

function showFabric() {
  const group = fabric.groups.find((each) => each.number === chosen) ?? null;
  if (!group) chosen = null;
  tree.draw(fabric, group);
  showLegend(group);
  jobs.update(fabric.jobs);
  showGroups();
  for (const name of ["nodes", "groups", "jobs"]) byId(`${name}-number`).textContent = fabric[name].length;
}

function showGroups() {
  const wanted = byId("groups-filter").value.toLowerCase();
  const text = (group) => [group.label, group.jobName, group.job, ...group.names].join(" ").toLowerCase();
  const shown = fabric.groups.filter((group) => text(group).includes(wanted));
  groups.update(shown.map((group) => ({ ...group, className: group.number === chosen ? "chosen" : "" })));
}

function showRates() {
  const rows = fabric.nodes.map((node) => ({ ...node, rates: rates.of(node.number) }));
  nodes.update(rows);
  for (const row of rows) {
    const known = row.rates ? `, ${count(row.rates.contributions)} contributions/s, ${count(losses(row.rates))} losses/s` : "";
    tree.mark(row, `${row.name}: ${row.used} of ${row.osos} operations, ${row.groups} groups${known}`,
      Boolean(row.rates) && losses(row.rates) > 0);
  }
  const sum = rates.total(fabric.nodes.map((node) => node.number));
  showTotals([["contributions/s", count(sum.contributions)], ["results/s", count(sum.results)],
    ["in/s", bytes(sum.payload_received_bytes)], ["out/s", bytes(sum.payload_sent_bytes)],
    ["repeats/s", count(sum.repeats), sum.repeats], ["losses/s", count(losses(sum)), losses(sum)]]);
}

function showTotals(totals) {
  byId("totals").replaceChildren(...totals.map(([title, value, isTrouble]) => {
    const tile = document.createElement("div");
    const [term, number] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, number.textContent] = [title, value];
    if (isTrouble) number.className = "trouble";
    tile.append(term, number);
    return tile;
  }));
}

function say(text, isLive) {
  const line = byId("connection");
  line.textContent = text;
  line.classList.toggle("live", isLive);
}

const events = new EventSource("/v1/watch");
events.addEventListener("open", () => say("live", true));
events.addEventListener("error", () =>
  say(events.readyState === EventSource.CLOSED ? "closed: run tributary open again" : "no manager; trying again", false));
events.addEventListener("fabric", (event) => {
  fabric = new Fabric(JSON.parse(event.data));
  showFabric();
  showRates();
});
events.addEventListener("counts", (event) => {
  rates.take(JSON.parse(event.data));
  showRates();
});
byId("groups-filter").addEventListener("input", showGroups);
addEventListener("resize", () => choose(chosen));
