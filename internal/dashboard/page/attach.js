import { toast } from "./dialogs.js";
import { h } from "./dom.js";
import { plain } from "./format.js";

// Limits of the API.
const attachedMost = 20;
const attachedOne = 5 << 20; // bytes of one file
const attachedAll = 10 << 20; // bytes of all files of a prompt

const sizeText = (n) => (n < 1 << 20 ? `${Math.ceil(n / 1024)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`);

// Attached are the files that go with the next prompt of each session: those that somebody chose,
// dropped or pasted, until the page is loaded again, and those of the session's directory that the
// prompt names behind an @. of() is the id of the session that is shown, and takes() says whether
// it takes any.
export class Attached {
  constructor(of, takes) {
    Object.assign(this, { of, takes });
    this.all = new Map();
    this.list = h("ul.attached", { "aria-label": "Attached files", hidden: true });
    const input = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
      this.add(input.files);
      input.value = "";
    } });
    this.button = h("button.ghost", { onclick: () => input.click() }, "Attach…");
    this.input = input;
  }

  // here has what goes with the next prompt of the session that is shown.
  get here() {
    const id = this.of();
    if (!this.all.has(id)) this.all.set(id, { files: [], named: new Set() });
    return this.all.get(id);
  }

  // accept takes the files that are dropped on an element and pasted into it.
  accept(el) {
    const hasFiles = (e) => this.takes() && e.dataTransfer.types.includes("Files");
    const over = (is) => (e) => {
      if (!hasFiles(e)) return;
      e.preventDefault();
      el.classList.toggle("dropping", is);
    };
    el.addEventListener("dragover", over(true));
    el.addEventListener("dragleave", over(false));
    el.addEventListener("drop", (e) => {
      over(false)(e);
      if (!hasFiles(e)) return;
      e.stopPropagation();
      this.add(e.dataTransfer.files);
    });
    el.addEventListener("paste", (e) => {
      const { files, types } = e.clipboardData;
      // Programs of an office bring a picture of the text beside it.
      if (!this.takes() || !files.length ||
        ["text/plain", "text/html"].every((t) => types.includes(t))) return;
      e.preventDefault();
      this.add(files);
    });
  }

  add(files) {
    const here = this.here.files;
    for (const file of files) {
      const all = here.reduce((sum, f) => sum + f.size, file.size),
        why = here.length === attachedMost ? `more than ${attachedMost} files`
          : file.size > attachedOne ? `more than ${sizeText(attachedOne)}`
          : all > attachedAll ? `with the others more than ${sizeText(attachedAll)}` : !file.size &&
            "empty";
      if (why) toast(`${plain(file.name)} is not attached: ${why}.`, "error");
      else here.push(file);
    }
    this.draw();
  }

  draw() {
    const { files } = this.here;
    this.button.hidden = !this.takes();
    this.list.hidden = !files.length;
    this.list.replaceChildren(...files.map((file, i) => h("li",
      h("span", plain(file.name)), h("span.sub", sizeText(file.size)),
      h("button.ghost", { "aria-label": `Remove ${plain(file.name)}`, onclick: () => {
        files.splice(i, 1);
        this.draw();
        (this.list.querySelectorAll("button")[Math.min(i, files.length - 1)] ??
          this.button).focus();
      } }, "×"))));
  }

  // request reads what goes with a prompt of the session that is shown, as the API wants it. sent()
  // forgets it.
  async request(text, cwd) {
    const here = this.here, { files, named } = here,
      sent = files.slice();
    const attachments = this.takes() ? [
      ...[...named].filter((path) => text.includes(`@${path}`))
        .map((path) => ({ path: `${cwd.replace(/\/$/, "")}/${path}` })),
      ...await Promise.all(sent.map(async (file) => ({
        name: file.name, data: await base64(file), mimeType: /^text\/[\w.+-]+/.exec(file.type)?.[0],
      })))] : [];
    return {
      attachments,
      sent: () => {
        here.named.clear();
        here.files = here.files.filter((f) => !sent.includes(f));
        this.draw();
      },
    };
  }
}

// base64 reads a file.
const base64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(new Error(`${plain(file.name)} can't be read: ${reader.error.message}`));
  reader.readAsDataURL(file);
});
