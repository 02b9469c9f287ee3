// The status as the page needs it: who is below whom, and which groups are where.

export class Fabric {
  constructor(status) {
    this.nodes = status.nodes.map((node) => ({
      number: node.node,
      name: node.registration.name,
      address: node.registration.address.tcp,
      used: node.osos_used,
      osos: node.registration.osos,
      isDraining: Boolean(node.is_draining),
      parent: node.parent ?? null,
      groups: 0,
    }));
    this.byName = new Map(this.nodes.map((node) => [node.name, node]));
    const jobs = new Map(status.jobs.map((job) => [job.job, job.name]));
    this.groups = status.groups.map((group) => this.#group(group, jobs));
    this.jobs = status.jobs;
  }

  #group(group, jobs) {
    const names = group.nodes.map((node) => node.name);
    for (const name of names) {
      const node = this.byName.get(name);
      if (node) node.groups += 1;
    }
    const inner = new Set(names);
    const hosts = group.nodes.flatMap((node) => node.children).filter((child) => !inner.has(child));
    return { number: group.group, epoch: group.epoch, label: group.label, job: group.job, jobName: jobs.get(group.job) ?? "",
      osos: group.osos, hosts: hosts.length, root: names[0] ?? "", nodes: group.nodes, names,
      waiting: group.waiting ?? null };
  }

  // The nodes below `parent`, by name; below null, those whose parent is not there.
  below(parent) {
    const found = this.nodes.filter((node) => (this.byName.has(node.parent) ? node.parent : null) === parent);
    return found.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  }
}
