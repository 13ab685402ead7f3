// The service: requests with the user's key, and streams of server-sent events.

const KEY = "dragonrt.key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value.trim()),
};

export class Refused extends Error {
  constructor(status, message, code = "") {
    super(message);
    Object.assign(this, { status, code });
  }
}

function headers(more = {}) {
  return key.get() ? { ...more, Authorization: `Bearer ${key.get()}` } : more;
}

async function checked(response) {
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  const { message, code } = said?.error ?? { message: `the service answered ${response.status}` };
  throw new Refused(response.status, message, code);
}

export async function getJson(path) {
  return (await checked(await fetch(path, { headers: headers() }))).json();
}

export async function remove(path) {
  return (await checked(await fetch(path, { method: "DELETE", headers: headers() }))).json();
}

/** Sends a file; `moved` hears which part of it is there. */
export function put(path, file, moved) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", path);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && moved(event.loaded / event.total);
    request.onerror = () => reject(new Refused(0, "the connection was lost"));
    request.onload = () => {
      let said = null;
      try {
        said = JSON.parse(request.responseText || "null");
      } catch {} // an error that is not the service's own
      if (request.status < 300) resolve(said);
      else reject(new Refused(request.status, said?.error?.message ?? `status ${request.status}`));
    };
    request.send(file);
  });
}

/** The events of a POST, each as the object that its data is. */
export async function* events(path, body, signal) {
  const response = await checked(
    await fetch(path, {
      method: "POST",
      headers: headers({ "Content-Type": "application/json" }),
      body: JSON.stringify(body),
      signal,
    }),
  );
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    unread += value;
    const blocks = unread.split("\n\n");
    unread = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
    }
  }
}
