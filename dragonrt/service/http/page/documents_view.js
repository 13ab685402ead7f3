// Private documents: what there is, files dropped to be added, files taken away.

import { getJson, put, remove } from "./api.js";
import { element } from "./element.js";

const place = (name) => `/documents/${encodeURIComponent(name)}`;

export class DocumentsView {
  constructor({ drop, hint, choose, files, uploads, listed, chosen }) {
    Object.assign(this, { drop, hint, choose, files, uploads, listed, chosen });
    files.addEventListener("change", () => {
      this.add(files.files);
      files.value = "";
    });
    for (const kind of ["dragover", "dragenter"]) {
      drop.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.add("over");
      });
    }
    for (const kind of ["dragleave", "drop"]) {
      drop.addEventListener(kind, () => drop.classList.remove("over"));
    }
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this.add(event.dataTransfer.files);
    });
  }

  async refresh() {
    const found = await getJson("/documents");
    const { files, total, kinds, left, tags } = found;
    const open = kinds.length > 0;
    this.choose.hidden = !open;
    this.files.accept = kinds.join(",");
    this.drop.title = kinds.join(" ");
    this.hint.textContent = open
      ? "Drop files here. They stay on this machine."
      : "Start with --uploads DIR to add files here.";
    const rows = files.map(({ name, upload }) =>
      element(
        "li",
        {},
        element("span", {}, name),
        upload
          ? element(
              "button",
              { type: "button", "aria-label": `Delete ${name}`, onclick: () => this.delete(name, upload) },
              "Delete",
            )
          : "",
      ),
    );
    if (total > files.length) rows.push(element("li", {}, `and ${total - files.length} more`));
    if (left) rows.push(element("li", {}, `Still to index: ${left}`));
    this.listed.replaceChildren(...rows);
    const { value } = this.chosen;
    const names = files.map(({ name }) => name);
    const folders = names.flatMap((name) =>
      [...name.matchAll(/\//g)].map(({ index }) => name.slice(0, index + 1)),
    );
    const day = new Date(Date.now() - 30 * 864e5).toISOString().slice(0, 10);
    const recent = element("option", { value: `since:${day}` }, "those of the last 30 days");
    const groups = Object.entries({ Tags: tags, Folders: [...new Set(folders)], Files: names })
      .filter(([, each]) => each.length)
      .map(([label, each]) =>
        element("optgroup", { label }, ...each.map((name) => element("option", {}, name))),
      );
    this.chosen.replaceChildren(this.chosen.options[0], recent, ...groups);
    this.chosen.value = value;
    if (this.chosen.selectedIndex < 0) this.chosen.value = "";
    return found;
  }

  async add(files) {
    await Promise.all([...files].map((file) => this.upload(file)));
    await this.refresh();
  }

  async upload(file) {
    const bar = element("progress", { max: "1", value: "0", "aria-label": `Adding ${file.name}` });
    const state = element("span", { role: "status" }, `${file.name}: sending`);
    const row = element("li", {}, state, bar);
    this.uploads.append(row);
    try {
      const said = await put(place(file.name), file, (part) => {
        bar.value = part;
        if (part === 1) {
          state.textContent = `${file.name}: being read`;
          bar.removeAttribute("value");
        }
      });
      if (said.indexed) row.remove();
      else state.textContent = `${file.name}: ${said.reason}`;
    } catch (error) {
      state.textContent = `${file.name}: ${error.message}`;
      state.className = "problem";
      bar.replaceWith(
        element("button", { type: "button", onclick: () => row.remove() }, "Dismiss"),
      );
    }
  }

  async delete(name, upload) {
    if (!confirm(`Delete ${name} from this machine?`)) return;
    await remove(place(upload));
    await this.refresh();
    this.listed.focus();
  }
}
