// The state that the bot keeps across restarts, in one file that is never half written.

import { readFileSync } from "node:fs";
import { open, rename } from "node:fs/promises";

export class Store {
  /** @type {Record<string, any>} */
  data = {};
  /** @type {Promise<void> | undefined} the write that has not begun */
  #next;
  #last = Promise.resolve();

  /** @param {string} file */
  constructor(file) {
    this.file = file;
    let text = "";
    try {
      text = readFileSync(file, "utf8");
    } catch (e) {
      if (/** @type {NodeJS.ErrnoException} */ (e).code !== "ENOENT") throw e;
      return;
    }
    try {
      this.data = JSON.parse(text);
    } catch {
      throw new Error(`${file}: is no JSON: move it away to begin anew`);
    }
  }

  /** Writes the data. Resolves when they are on the disk as they are now. */
  save() {
    this.#next ??= this.#last = this.#last.catch(() => {}).then(async () => {
      this.#next = undefined;
      const part = `${this.file}.part`;
      const f = await open(part, "w", 0o600);
      try {
        await f.writeFile(JSON.stringify(this.data));
        await f.sync();
      } finally {
        await f.close();
      }
      await rename(part, this.file);
    });
    return this.#next;
  }
}
