// Draws the fabric's tree as SVG: root above, leaves in a row, load as how full a node's circle is.

const SPACE = "http://www.w3.org/2000/svg";
const LEAF_WIDTH_MIN = 13;
const LEVEL_HEIGHT = 78;
const MARGIN = { top: 26, side: 12 };
// From this distance on, leaves have room for a name beside the next one's.
const LEVEL_NAME_WIDTH = 7;

const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SPACE, name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
};

// Gives every node a level and a place among the leaves.
function lay(fabric) {
  const places = new Map();
  let leaves = 0;
  let levels = 0;
  const visit = (node, level) => {
    levels = Math.max(levels, level + 1);
    const below = fabric.below(node.name);
    const at = below.map((child) => visit(child, level + 1));
    const place = below.length ? (at[0] + at[at.length - 1]) / 2 : leaves++;
    places.set(node.name, { node, level, place, isLeaf: !below.length });
    return place;
  };
  for (const root of fabric.below(null)) visit(root, 0);
  return { places, leaves, levels };
}

export class Tree {
  constructor(container) {
    this.container = container;
    this.marks = new Map();
  }

  // Draws anew; `chosen` is a group or null.
  draw(fabric, chosen) {
    const { places, leaves, levels } = lay(fabric);
    const room = Math.max(320, this.container.clientWidth) - 2 * MARGIN.side;
    const step = Math.max(LEAF_WIDTH_MIN, room / Math.max(1, leaves));
    const longest = Math.max(0, ...fabric.nodes.map((node) => node.name.length));
    const upright = longest * LEVEL_NAME_WIDTH > step;
    const radius = Math.min(9, step / 2);
    const width = step * leaves + 2 * MARGIN.side;
    const height = MARGIN.top + (levels - 1) * LEVEL_HEIGHT + radius + 8 + (upright ? longest * LEVEL_NAME_WIDTH : 16);
    const point = ({ place, level }) => [MARGIN.side + (place + 0.5) * step, MARGIN.top + level * LEVEL_HEIGHT];
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the fabric's tree" });
    picture.style.minWidth = `${Math.min(width, LEAF_WIDTH_MIN * leaves)}px`;
    const names = new Set(chosen?.names);
    const edges = new Set(chosen?.nodes.map((node) => `${node.parent}>${node.name}`));
    for (const spot of places.values()) {
      const above = places.get(spot.node.parent);
      if (above) picture.append(edge(point(above), point(spot), chosen, edges.has(`${above.node.name}>${spot.node.name}`)));
    }
    this.marks = new Map();
    for (const spot of places.values()) {
      const mark = drawNode(spot, point(spot), radius, upright && spot.isLeaf);
      mark.classList.toggle("aside", Boolean(chosen) && !names.has(spot.node.name));
      mark.classList.toggle("draining", spot.node.isDraining);
      this.marks.set(spot.node.number, mark);
      picture.append(mark);
    }
    this.container.replaceChildren(picture);
  }

  // Shows what changes every second, without drawing anew.
  mark(node, title, isLosing) {
    const mark = this.marks.get(node.number);
    if (!mark) return;
    mark.classList.toggle("losing", isLosing);
    const text = mark.querySelector("title");
    if (text.textContent !== title) text.textContent = title;
  }
}

function edge([x0, y0], [x1, y1], chosen, isChosen) {
  const middle = (y0 + y1) / 2;
  const path = svg("path", { d: `M${x0} ${y0}C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}` });
  path.classList.toggle("chosen", isChosen);
  path.classList.toggle("aside", Boolean(chosen) && !isChosen);
  return path;
}

function drawNode({ node, isLeaf }, [x, y], radius, upright) {
  const load = node.osos ? Math.sqrt(node.used / node.osos) : 0;
  const below = y + radius + 6;
  const label = upright
    ? svg("text", { x, y: below, transform: `rotate(90 ${x} ${below})`, "dominant-baseline": "central" })
    : svg("text", { x, y: isLeaf ? below + 8 : y - radius - 6, "text-anchor": "middle" });
  label.textContent = node.name;
  return svg("g", {}, svg("title"), svg("circle", { class: "body", cx: x, cy: y, r: radius }),
    svg("circle", { class: "load", cx: x, cy: y, r: Math.max(0, radius - 1) * load }), label);
}
