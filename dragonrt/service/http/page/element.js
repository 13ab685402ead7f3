// Elements made of text: nothing that a model or a file says is ever read as markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a string child is text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A list of terms with their values into a <dl>. */
export function define(list, rows) {
  list.replaceChildren(
    ...rows.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value.toLocaleString("en"))]),
  );
}
