// The page checks the file that it carries, with the checker above, in a worker; and again what a reader makes of the file.
const LONGEST = 2 ** 26; // characters of a file
const AROUND = 1200; // characters before and behind the place that is shown

async function unpacked(link) {
  const bytes = Uint8Array.from(atob(link.href.slice(link.href.indexOf(",") + 1)), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const [parts, decoder, reader] = [[], new TextDecoder("utf-8", { fatal: true }), stream.getReader()];
  for (let length = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return parts.join("") + decoder.decode();
    parts.push(decoder.decode(value, { stream: true }));
    length += parts[parts.length - 1].length;
    if (length > LONGEST) throw new Error("the file is too large");
  }
}

// What the checker says of a text: {rows, seconds}, {uncovered}, {refused} or {late}.
function judged(text, anew) {
  const work = URL.createObjectURL(new Blob([`const check = (${checker})(); onmessage = ({ data }) => postMessage(check(...data));`]));
  return new Promise((answer) => {
    const worker = new Worker(work);
    const seconds = 5 + text.length / 1e6;
    const finish = (found) => {
      clearTimeout(late);
      worker.terminate();
      URL.revokeObjectURL(work);
      answer(found);
    };
    const late = setTimeout(() => finish({ late: seconds }), 1000 * seconds);
    worker.onmessage = ({ data }) => finish(data);
    worker.onerror = () => finish({ uncovered: "this browser does not run the page's checker" });
    worker.postMessage([text, anew]);
  });
}

const made = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);

function sentence({ rows, seconds, uncovered, refused, late }) {
  if (late) return `Nothing was checked here: too large to check in ${late.toFixed(1)} s. Run verify.pyz.`;
  if (uncovered && uncovered.startsWith("too large")) return `Nothing was checked here: ${uncovered}. Run verify.pyz.`;
  if (uncovered) return `Nothing was checked here: this page has no check for it (${uncovered}). Run verify.pyz.`;
  if (refused) return `Refused: ${refused}. Nothing that the file says is believed.`;
  const claims = rows.filter((row) => !row.agrees);
  const failed = rows.filter((row) => !row.holds);
  const count = ["proved", "recomputed", "claimed"].map((how) => [claims.filter((row) => row.how === how).length, how]);
  const said = count.filter(([n]) => n).map(([n, how]) => `${n} ${how}`).join(", ");
  const time = `in ${seconds.toFixed(2)} s`;
  if (failed.length) return `${failed.length} of ${rows.length} checks fail (${time}): ${failed.map((row) => row.claim).join("; ")}.`;
  return `Checked by this page ${time}: all ${claims.length} claims hold (${said}), and the file agrees with itself.`;
}

function fill(body, rows) {
  body.replaceChildren(
    ...[...rows.filter((row) => !row.agrees), ...rows.filter((row) => row.agrees)].map(({ claim, how, holds, margin, agrees }) => {
      const row = document.createElement("tr");
      const left = margin === null || !Number.isFinite(margin) ? "" : margin === 0 ? "0" : margin.toPrecision(3).replace("e+", "e");
      row.append(
        made("th", claim, { scope: "row" }),
        made("td", !holds ? "fails" : agrees ? "agrees" : how, { className: !holds ? "no" : agrees ? "" : how }),
        made("td", holds ? "yes" : "no", { className: holds ? "yes" : "no" }),
        made("td", left, { className: "number" }),
      );
      return row;
    }),
  );
}

async function show(place, text, anew) {
  const status = place.querySelector(".verdict");
  status.className = "verdict";
  status.textContent = "Being checked …";
  const found = await judged(text, anew);
  place.querySelector("caption").textContent = found.rows
    ? "What this page checked itself, when it was opened"
    : "Claims of the file, not checked by this page";
  if (found.rows) fill(place.querySelector("tbody"), found.rows);
  else for (const row of place.querySelectorAll("tbody tr")) [...row.cells].slice(1).forEach((cell, k) => Object.assign(cell, { className: "", textContent: k ? "" : "not checked" }));
  const good = found.rows && found.rows.every((row) => row.holds);
  status.className = `verdict ${good ? "yes" : found.rows || found.refused ? "no" : ""}`;
  status.textContent = sentence(found);
}

// A box with a part of the file in which a digit can be changed.
function box(place, original) {
  let [text, from, to] = [original, 0, 0];
  const area = made("textarea", "", { rows: 14, spellcheck: false });
  area.setAttribute("aria-label", "A part of the file, to be changed");
  const wanted = made("input", "", { type: "search", value: '"value"' });
  wanted.setAttribute("aria-label", "What to look for in the file");
  const anew = made("input", "", { type: "checkbox", checked: true });
  const button = (words, action) => {
    const found = made("button", words, { type: "button" });
    found.addEventListener("click", action);
    return found;
  };
  const keep = () => {
    text = text.slice(0, from) + area.value + text.slice(to);
    to = from + area.value.length;
  };
  const view = (at) => {
    from = Math.max(text.lastIndexOf("\n", Math.max(at - AROUND, 0)) + 1, 0);
    to = text.indexOf("\n", at + AROUND);
    if (to < 0) to = text.length;
    area.value = text.slice(from, to);
    area.setSelectionRange(at - from, at - from + wanted.value.length);
    area.scrollTop = (area.scrollHeight * (at - from)) / Math.max(to - from, 1) - area.clientHeight / 2;
  };
  const find = () => {
    keep();
    const next = text.indexOf(wanted.value, from + area.selectionEnd);
    const at = next < 0 ? text.indexOf(wanted.value) : next;
    if (at >= 0) view(at);
  };
  wanted.addEventListener("keydown", (event) => event.key === "Enter" && find());
  const check = button("Check the changed file", () => {
    keep();
    show(place, text, anew.checked);
  });
  const back = button("Put the file back", () => {
    text = original;
    from = to = 0;
    area.value = "";
    view(Math.max(text.indexOf(wanted.value), 0));
    show(place, text, false);
  });
  const label = document.createElement("label");
  label.append(anew, " Seal it anew, as a forger would: without this the checksum alone gives the change away.");
  const search = made("p", "");
  search.append(wanted, " ", button("Find the next", find));
  const actions = made("p", "");
  actions.append(check, " ", back);
  const words = "Change a digit of the value, of ε, of a weight of the law or of a multiplier, and see which claim fails. Numbers far behind the point may be changed without making a claim false.";
  const details = document.createElement("details");
  details.className = "screen box";
  details.append(made("summary", "Change a digit, and see a claim fail"), made("p", words), search, area, label, actions);
  details.addEventListener("toggle", () => details.open && !area.value && view(Math.max(text.indexOf(wanted.value), 0)));
  place.append(details);
}

for (const place of document.querySelectorAll(".check")) {
  const link = place.querySelector("a[download]");
  if (typeof DecompressionStream === "undefined") {
    place.querySelector(".verdict").textContent = "Nothing was checked here: this browser cannot unpack the file. Run verify.pyz.";
    continue;
  }
  unpacked(link).then(async (text) => {
    link.download = link.download.replace(/\.gz$/, "");
    link.textContent = `Save ${link.download}`;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    await show(place, text, false);
    box(place, text);
  }, () => {
    place.querySelector(".verdict").textContent = "Nothing was checked here: the file that this page carries is damaged.";
  });
}
