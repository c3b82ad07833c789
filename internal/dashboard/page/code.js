import { copyButton, h } from "./dom.js";

export function codeBlock(code, language) {
  return h("div", { class: "code" },
    h("pre", { tabindex: "0", role: "group", "aria-label": language ? `Code, ${language}` : "Code" },
      h("code", null, code)),
    copyButton(() => code));
}
