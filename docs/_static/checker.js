// Loads Python (Pyodide), the stand-alone verifier and checker.py; all that is decided is decided there.
const at = (id) => document.getElementById(id);
const here = (path) => new URL(path, document.baseURI).href;
const say = (text) => { at("said").textContent = text; };
const settled = () => new Promise((done) => setTimeout(done, 30));
const fetched = async (path) => {
  const answer = await fetch(here(path));
  if (!answer.ok) throw new Error(path);
  return new Uint8Array(await answer.arrayBuffer());
};

// The program of Python is kept packed: a third of its size, and no server needs to know its type.
const plain = globalThis.fetch;
globalThis.fetch = async (address, ...rest) => {
  if (!String(address.url ?? address).endsWith(".wasm")) return plain(address, ...rest);
  const packed = await plain(`${address.url ?? address}.gz`);
  if (!packed.ok) return packed;
  const body = packed.body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(body, { headers: { "Content-Type": "application/wasm" } });
};

async function start() {
  const { loadPyodide } = await import(here("pyodide/pyodide.mjs"));
  const [python, archive, page] = await Promise.all([
    loadPyodide({ indexURL: here("pyodide/") }), fetched("verify.pyz"), fetched("_static/checker.py"),
  ]);
  python.FS.writeFile("/verify.pyz", archive);
  python.FS.writeFile("/checker.py", page);
  return python.runPython("import sys; sys.path[:0] = ['/verify.pyz', '/']; import checker; checker");
}

async function main(checker) {
  const changed = () => { at("number").value = checker.number(Number(at("place").value)); };
  const take = async (file) => {
    if (!file) return;
    say(`Checking ${file.name} …`);
    at("change").hidden = true;
    await settled();
    if (file.size > 64 * 2 ** 20) {
      at("found").textContent = `${file.name} has ${Math.round(file.size / 1e6)} MB: files of at most 64 MiB are checked here.`;
    } else {
      at("found").innerHTML = checker.opened(file.name, new Uint8Array(await file.arrayBuffer()));
      at("place").innerHTML = checker.choices();
      at("change").hidden = !at("place").length;
      if (at("place").length) changed();
    }
    at("after").textContent = "";
    say("Drop another file, or choose one.");
  };
  at("file").addEventListener("change", () => take(at("file").files[0]));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });
  at("place").addEventListener("change", changed);
  at("again").addEventListener("click", () => {
    at("after").innerHTML = checker.with_change(Number(at("place").value), at("number").value);
  });
  at("file").disabled = false;
  say("Drop a result file or a report page anywhere here, or choose one.");
}

start().then(main, () => {
  say("Python for the browser could not be loaded: these pages were built without npm or network, or are open as files rather than "
    + "from a server. Save verify.pyz (linked below) and run: python verify.pyz result.json");
});
