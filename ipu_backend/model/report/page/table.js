// Tables that sort and filter, of any number of rows: only those in sight are there as elements.

const ROW = 27;

class Table {
  // columns: [{name, title, number, text(row), value(row)}]; rows(): the numbers of the rows there are.
  constructor(id, columns, rows, { chosen = () => false, choose = null, sort = null, says = "" } = {}) {
    Object.assign(this, { columns, rows, chosen, choose, sort, says });
    this.place = document.getElementById(id);
    this.box = document.createElement("div");
    this.box.className = "table";
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", says || id);
    this.count = document.createElement("div");
    this.count.className = "count";
    this.place.append(this.box, this.count);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    this.heads = columns.map((column) => {
      const th = document.createElement("th");
      th.scope = "col";
      if (column.number) th.className = "number";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.title;
      button.addEventListener("click", () => this.sortBy(column.name));
      th.append(button);
      head.append(th);
      return th;
    });
    this.body = table.createTBody();
    this.box.append(table);
    this.box.addEventListener("scroll", () => this.show());
  }

  sortBy(name) {
    const falling = this.sort && this.sort.name === name ? !this.sort.falling : this.columns.find((c) => c.name === name).number;
    this.sort = { name, falling: Boolean(falling) };
    this.update();
  }

  update() {
    const rows = Array.from(this.rows());
    if (this.sort) {
      const column = this.columns.find((own) => own.name === this.sort.name);
      const value = column.value || column.text;
      const values = new Map(rows.map((row) => [row, value(row)]));
      const sign = this.sort.falling ? -1 : 1;
      rows.sort((one, other) => {
        const [a, b] = [values.get(one), values.get(other)];
        return a === b ? one - other : sign * (a < b ? -1 : 1);
      });
    }
    this.heads.forEach((th, k) => {
      const own = this.sort && this.sort.name === this.columns[k].name;
      if (own) th.setAttribute("aria-sort", this.sort.falling ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    const same = this.shown && rows.length === this.shown.length && rows.every((row, k) => row === this.shown[k]);
    this.shown = rows;
    this.count.textContent = whole(rows.length) + (rows.length === 1 ? " row" : " rows");
    if (!same) this.box.scrollTop = 0;
    this.show();
  }

  show() {
    const many = Math.ceil((this.box.clientHeight || 420) / ROW) + 20;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 10);
    const last = Math.min(this.shown.length, first + many);
    const rows = [];
    const space = (height) => {
      const tr = document.createElement("tr");
      tr.setAttribute("aria-hidden", "true");
      tr.style.height = height + "px";
      return tr;
    };
    if (first) rows.push(space(first * ROW));
    for (const row of this.shown.slice(first, last)) {
      const tr = document.createElement("tr");
      tr.dataset.row = row;
      for (const column of this.columns) {
        const td = document.createElement("td");
        td.textContent = column.text(row);
        if (column.number) td.className = "number";
        else td.title = td.textContent;
        tr.append(td);
      }
      if (this.choose) {
        tr.tabIndex = 0;
        tr.setAttribute("aria-selected", String(Boolean(this.chosen(row))));
        tr.addEventListener("click", () => this.choose(row));
        tr.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            this.choose(row);
          } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            const other = event.key === "ArrowDown" ? tr.nextElementSibling : tr.previousElementSibling;
            if (other && other.tabIndex === 0) {
              event.preventDefault();
              other.focus();
            }
          }
        });
      }
      rows.push(tr);
    }
    if (last < this.shown.length) rows.push(space((this.shown.length - last) * ROW));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.row : undefined;
    this.body.replaceChildren(...rows);
    if (focused !== undefined) this.body.querySelector(`tr[data-row="${focused}"]`)?.focus({ preventScroll: true });
  }
}

// Columns of one of the report's tables.
const textColumn = (table, name, title) => ({ name, title, text: (row) => String(cell(table, name, row)) });
const numberColumn = (table, name, title, show = whole) => ({
  name,
  title,
  number: true,
  value: (row) => cell(table, name, row),
  text: (row) => show(cell(table, name, row)),
});
const shareColumn = (table, name, title) => numberColumn(table, name, title, (share) => percent(share, 1));
