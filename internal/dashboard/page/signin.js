import { call } from "./api.js";
import { h } from "./dom.js";

// signIn makes the page of a browser that is not signed in.
export function signIn() {
  const field = h("input", {
    id: "credential", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "signin-hint signin-fault",
  });
  const fault = h("p", { id: "signin-fault", class: "fault", role: "alert" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const go = async (e) => {
    e.preventDefault();
    fault.textContent = "";
    button.disabled = true;
    try {
      await enter(field.value.trim());
    } catch (error) {
      fault.textContent =
        error.status === 401
          ? "This is not this gateway's admin token. It has a new one after each start."
          : error.message;
      field.select();
    } finally {
      button.disabled = false;
    }
  };
  return h("main", { class: "signin" },
    h("h1", null, "tapgw"),
    h("p", null, "You are not signed in. In a terminal on this machine, run"),
    h("pre", null, h("code", null, "tapctl open")),
    h("p", null, "and it opens this page with a link that works once."),
    h("form", { onsubmit: go },
      h("label", { for: "credential" }, "Or paste the link, its code, or the admin token"),
      h("div", { class: "row" }, field, button),
      h("p", { id: "signin-hint", class: "hint" },
        "tapctl open --print shows a link. The token lies in .admin-token; it is sent once and not kept here."),
      fault));
}

// enter opens a sign-in link on this gateway, from the whole link or the part that was pasted.
async function enter(text) {
  let code = text;
  if (URL.canParse(text)) {
    code = new URL(text).searchParams.get("code");
    if (!code) throw new Error("This link has no code. Take the whole of what tapctl open --print shows.");
  } else if (text.startsWith("adm-")) {
    const link = await call("POST", "/signin-links", {}, { Authorization: `Bearer ${text}` });
    code = new URL(link.url).searchParams.get("code");
  }
  location.assign(`/signin?code=${encodeURIComponent(code)}${location.hash}`); // back to the same view
}
