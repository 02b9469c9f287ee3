#!/usr/bin/env bash
# Restarts aggregation nodes one after the other, under running jobs.
#
# Each node is drained, restarted once no group is left on it, and waited for until it has registered anew. The first
# thing that goes wrong ends the script, and the nodes behind it stay as they are. Run it where `tributary status`
# works: with TRIBUTARY_MANAGER and TRIBUTARY_TOKEN_FILE set. It needs jq.
#
#   rolling-upgrade.sh                                        # all nodes, by ssh to hosts of the same names
#   rolling-upgrade.sh --restart 'ssh root@$NODE systemctl restart tributary-node' leaf-1 leaf-2
set -euo pipefail

usage="usage: ${0##*/} [--restart COMMAND] [--seconds LIMIT] [NODE...]

  --restart COMMAND  restarts node \$NODE; the shell runs it (default: ssh \$NODE systemctl restart tributary-node)
  --seconds LIMIT    how long each step may take for one node (default: 60)
  NODE...            the nodes, in this order (default: all, as tributary status shows them)"

restart='ssh "$NODE" systemctl restart tributary-node'
limit=60

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

while [[ ${1-} == -* ]]; do
  case $1 in
    --restart) restart=${2:?"$usage"}; shift 2 ;;
    --seconds) limit=${2:?"$usage"}; shift 2 ;;
    --help) echo "$usage"; exit ;;
    *) fail "unknown option $1"$'\n'"$usage" ;;
  esac
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--seconds $limit: a whole number from 1 on"
command -v jq > /dev/null || fail "jq is not installed"

# Asks for one thing about a node: prints what the filter makes of its status, nothing if it is not registered.
ask() {
  local status
  status=$(tributary status --json) || return
  jq -r --arg name "$1" ".nodes[] | select(.registration.name == \$name) | $2" <<< "$status"
}

# Runs a test until it succeeds, or the limit has passed. A manager that is away for a while is waited for.
await() {
  local what=$1 until=$((SECONDS + limit))
  shift
  until "$@"; do
    ((SECONDS < until)) || fail "$what did not happen within $limit s"
    sleep 0.2
  done
}

is_drained() { tributary drain "$1" > /dev/null; }
is_free() { [[ $(ask "$1" 'select(.is_draining) | .osos_used') == 0 ]]; }
# A process that registers gets a number of its own.
is_new() { [[ $(ask "$1" 'select(.is_draining | not) | .node') =~ ^[0-9]+$ && ${BASH_REMATCH[0]} != "$2" ]]; }

nodes=("$@")
if ((${#nodes[@]} == 0)); then
  status=$(tributary status --json) || fail "the manager does not answer"
  mapfile -t nodes < <(jq -r '.nodes[].registration.name' <<< "$status")
fi
((${#nodes[@]} > 0)) || fail "no node is registered"

for node in "${nodes[@]}"; do
  before=$(ask "$node" .node) || fail "$node: the manager does not answer"
  [[ -n $before ]] || fail "$node: not registered"
  await "$node: draining it" is_drained "$node"
  await "$node: the end of its groups" is_free "$node"
  NODE=$node timeout "$limit" bash -c "$restart" || fail "$node: the restart failed, or took more than $limit s"
  await "$node: registering anew" is_new "$node" "$before"
  echo "$node is back"
done
