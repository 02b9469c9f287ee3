// A table that is sorted by a click on its head, and changes only the cells whose text has changed.

// `columns`: {title, value, text?, right?, show?}. `value` sorts; `text` or else `value` is shown, or `show` fills
// the cell by itself. `key` tells rows apart.
export class Table {
  #rows = new Map();
  #order = { column: 0, descending: false };

  constructor(table, columns, key, onRow = null) {
    Object.assign(this, { columns, key, onRow, last: [] });
    this.heads = columns.map((column, number) => this.#head(column, number));
    table.createTHead().insertRow().append(...this.heads);
    this.body = table.createTBody();
  }

  #head(column, number) {
    const head = document.createElement("th");
    const button = document.createElement("button");
    button.textContent = column.title;
    button.addEventListener("click", () => {
      const descending = this.#order.column === number ? !this.#order.descending : Boolean(column.right);
      this.#order = { column: number, descending };
      this.update(this.last);
    });
    head.className = column.right ? "right" : "";
    head.append(button);
    return head;
  }

  update(rows) {
    this.last = rows;
    const { column, descending } = this.#order;
    this.heads.forEach((head, number) =>
      head.setAttribute("aria-sort", number !== column ? "none" : descending ? "descending" : "ascending"));
    const { value } = this.columns[column];
    const sign = descending ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(b, "en", { numeric: true }));
    const sorted = [...rows].sort((a, b) => sign * compare(value(a), value(b)));
    const old = this.#rows;
    this.#rows = new Map();
    const lines = sorted.map((row) => {
      const line = old.get(this.key(row)) ?? this.#line();
      this.#rows.set(this.key(row), line);
      this.#fill(line, row);
      return line;
    });
    if (lines.length !== this.body.rows.length || lines.some((line, place) => line !== this.body.rows[place])) {
      this.body.replaceChildren(...lines);
    }
  }

  #line() {
    const line = document.createElement("tr");
    for (const column of this.columns) {
      const cell = line.insertCell();
      if (column.right) cell.className = "right";
    }
    if (this.onRow) line.addEventListener("click", () => this.onRow(line.row));
    return line;
  }

  #fill(line, row) {
    line.row = row;
    line.className = row.className ?? "";
    this.columns.forEach((column, place) => {
      const cell = line.cells[place];
      if (column.show) return column.show(cell, row);
      const text = String(column.text ? column.text(row) : column.value(row));
      if (cell.textContent !== text) cell.textContent = text;
    });
  }
}
